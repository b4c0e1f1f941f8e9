// A browser, pages that remember their errors, and accessibility checks.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { after, before } from "node:test";
import { chromium } from "playwright-core";

const AXE = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"];
/** Longer than the slowest machine needs. */
export const PATIENCE_MS = 30_000;
export const WIDE = { width: 1280, height: 800 };
export const PHONE = { width: 390, height: 844 };
export const NARROW = { width: 320, height: 640 };

/** The screens, as the address names them, with their headings. */
export const SCREENS = {
  overview: "Overview",
  "policies?name=login": "Policies",
  "key?policy=login&key=user:123": "Key",
  try: "Try a policy",
  client: "Client key",
  file: "Policy file",
};

let browser;

/** Starts the browser of a test file, and ends it with the last test. */
export function useBrowser() {
  before(async () => {
    browser = await chromium.launch({
      executablePath: process.env.CHROMIUM_BIN ?? "/usr/bin/chromium",
      args: [
        "--host-resolver-rules=MAP *.example 127.0.0.1",
        "--disable-features=LocalNetworkAccessChecks",
        "--js-flags=--expose-gc",
      ],
    });
  });
  after(() => browser?.close());
}

/** A context of its own: cookies, storage, viewport. */
export async function newContext(options = {}) {
  const context = await browser.newContext({ viewport: WIDE, ...options });
  context.setDefaultTimeout(PATIENCE_MS);
  return context;
}

/** A page that collects errors, warnings, dialogs and violations of the content security policy in `page.wrong`. */
export async function newPage(context) {
  const page = await context.newPage();
  page.wrong = [];
  page.on("console", (message) => {
    if (["error", "warning"].includes(message.type())) page.wrong.push(message.text());
  });
  page.on("pageerror", (error) => page.wrong.push(error.stack));
  page.on("dialog", (dialog) => {
    page.wrong.push(`dialog: ${dialog.message()}`);
    dialog.dismiss();
  });
  await page.addInitScript(() => {
    addEventListener("securitypolicyviolation", (event) =>
      console.error(`CSP ${event.violatedDirective} ${event.blockedURI}`),
    );
  });
  return page;
}

/** Runs a test with a page that is closed afterwards, whatever happens. */
export async function withPage(url, test, options = {}) {
  const context = await newContext(options);
  try {
    const page = await newPage(context);
    await page.goto(url);
    await page.locator("main h1").first().waitFor({ state: "attached" });
    await test(page, context);
  } finally {
    await context.close();
  }
}

/** Goes to a screen, and waits until it shows its data. */
export async function go(page, screen) {
  await page.evaluate((hash) => {
    location.hash = hash;
  }, `#/${screen}`);
  const heading = Object.entries(SCREENS).find(([name]) => name.split("?")[0] === screen.split("?")[0])?.[1];
  if (heading) await page.getByRole("heading", { level: 1, name: heading, exact: true }).waitFor({ state: "attached" });
  await settled(page);
}

/** Waits until nothing is loading. */
export async function settled(page) {
  await page.waitForFunction(() => !document.querySelector("main .loading"));
}

/** No rule of WCAG 2.2 AA and no best practice is violated. */
export async function assertAccessible(page, name) {
  // The debugger injects it, so the page's content security policy does not stop it.
  await page.evaluate(AXE);
  const { violations } = await page.evaluate(
    (rules) => globalThis.axe.run(document, { runOnly: rules, resultTypes: ["violations"] }),
    RULES,
  );
  const found = violations.map(
    ({ id, nodes }) =>
      `${name}: ${id}: ${nodes
        .slice(0, 3)
        .map((node) => `${node.target.join(" ")} ${node.any[0]?.message ?? ""}`)
        .join(" | ")}`,
  );
  assert.deepEqual(found, []);
}

export async function assertFits(page, name) {
  const wide = await page.evaluate(() => {
    const over = [...document.querySelectorAll("body *")].filter(
      (el) => el.getBoundingClientRect().right > innerWidth + 1 && !el.closest(".scroll, .sr, textarea, .tip"),
    );
    return document.documentElement.scrollWidth > innerWidth
      ? over.map((el) => `${el.tagName}.${el.className}`).slice(0, 5)
      : null;
  });
  assert.equal(wide, null, `${name} scrolls sideways`);
}

export function assertQuiet(page, allowed = /^$/) {
  assert.deepEqual(
    page.wrong.filter((text) => !allowed.test(text)),
    [],
  );
}
