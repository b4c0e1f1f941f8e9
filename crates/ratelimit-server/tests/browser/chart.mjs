// Has a real browser draw charts, and prints a JSON object: for each file, the texts that overlap or leave the drawing.
//
//   node chart.mjs FILE.svg...

import { pathToFileURL } from "node:url";
import { chromium } from "playwright-core";

const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM_BIN ?? "/usr/bin/chromium",
  args: ["--no-sandbox"],
});
try {
  const found = {};
  for (const file of process.argv.slice(2)) {
    const page = await browser.newPage();
    const requests = [];
    page.on("request", (request) => requests.push(request.url()));
    await page.goto(pathToFileURL(file).href);
    const background = [];
    for (const colorScheme of ["light", "dark"]) {
      await page.emulateMedia({ colorScheme });
      background.push(await page.evaluate(() => getComputedStyle(document.querySelector("svg > rect")).fill));
    }
    found[file] = { ...(await page.evaluate(measure)), background, requests: requests.length };
    await page.close();
  }
  console.log(JSON.stringify(found));
} finally {
  await browser.close();
}

function measure() {
  const [, , width, height] = document.documentElement.getAttribute("viewBox").split(" ").map(Number);
  const texts = [...document.querySelectorAll("text")].map((text) => ({ words: text.textContent, box: text.getBBox() }));
  const problems = [];
  for (const [index, { words, box }] of texts.entries()) {
    if (box.x < 0 || box.y < 0 || box.x + box.width > width || box.y + box.height > height) {
      problems.push(`${words} leaves the drawing`);
    }
    for (const other of texts.slice(index + 1)) {
      // Lines of text may touch; half a pixel is not seen.
      const apart =
        box.x + box.width <= other.box.x + 0.5 ||
        other.box.x + other.box.width <= box.x + 0.5 ||
        box.y + box.height <= other.box.y + 3 ||
        other.box.y + other.box.height <= box.y + 3;
      if (!apart) problems.push(`${words} overlaps ${other.words}`);
    }
  }
  return { texts: texts.length, problems };
}
