// Every screen in both themes and three widths, and as people change what they see.

import assert from "node:assert/strict";
import { mkdirSync, writeFileSync } from "node:fs";
import { test } from "node:test";
import { withFake } from "./fake.mjs";
import {
  assertAccessible,
  assertFits,
  assertQuiet,
  go,
  NARROW,
  PHONE,
  SCREENS,
  settled,
  useBrowser,
  WIDE,
  withPage,
} from "./harness.mjs";

useBrowser();

for (const colorScheme of ["light", "dark"]) {
  for (const [name, viewport] of Object.entries({ wide: WIDE, phone: PHONE, narrow: NARROW })) {
    test(`every screen is accessible, silent and fits: ${name}, ${colorScheme}`, () =>
      withFake({}, (fake) =>
        withPage(
          fake.url,
          async (page) => {
            for (const screen of Object.keys(SCREENS)) {
              await go(page, screen);
              await assertFits(page, screen);
              await assertAccessible(page, screen);
            }
            assertQuiet(page);
          },
          { colorScheme, viewport },
        ),
      ));
  }
}

test("the sign-in form, an outage and a read-only console are accessible and fit", () =>
  withFake({ signedIn: false, down: true, mode: "read" }, async (fake) => {
    for (const viewport of [WIDE, NARROW]) {
      fake.state.signedIn = false;
      await withPage(
        fake.url,
        async (page) => {
          await page.getByRole("heading", { name: "Sign in" }).waitFor();
          await assertFits(page, "sign in");
          await assertAccessible(page, "sign in");
          fake.state.signedIn = true;
          await page.reload();
          await page.getByRole("alert").filter({ hasText: "Redis has not answered" }).waitFor();
          await assertFits(page, "outage");
          await assertAccessible(page, "outage");
          await go(page, "key?policy=login&key=user:123");
          await page.getByText("Read-only").waitFor();
          await assertFits(page, "read-only");
          await assertAccessible(page, "read-only");
          assertQuiet(page);
        },
        { viewport },
      );
    }
  }));

test("reduced motion moves nothing, and forced colours keep every mark visible", () =>
  withFake({}, (fake) =>
    withPage(
      fake.url,
      async (page) => {
        for (const screen of Object.keys(SCREENS)) {
          await go(page, screen);
          await assertFits(page, screen);
          const moving = await page.evaluate(
            () =>
              [...document.querySelectorAll("*")].filter(
                (el) =>
                  !/^(none|all 0s.*)$/.test(getComputedStyle(el).transition) &&
                  getComputedStyle(el).transitionDuration !== "0s",
              ).length,
          );
          assert.equal(moving, 0, screen);
        }
        await go(page, "overview");
        // A mark that is drawn by its background would take the colour of the page.
        const marks = await page.evaluate(() =>
          [...document.querySelectorAll(".legend .key, #store .dot")].map((el) => getComputedStyle(el).backgroundColor),
        );
        const ground = await page.evaluate(() => getComputedStyle(document.body).backgroundColor);
        assert.equal(marks.length, 8);
        for (const mark of marks) assert.notEqual(mark, ground);
        assert.equal(new Set(marks.slice(1, 6)).size, 5, "each series has a colour of its own");
        assertQuiet(page);
      },
      { forcedColors: "active", reducedMotion: "reduce" },
    ),
  ));

test("without reduced motion the gauges of a key move", () =>
  withFake({}, (fake) =>
    withPage(`${fake.url}#/key?policy=login&key=user:123`, async (page) => {
      const gauge = page.locator(".gauge .bar i").first();
      const width = () => gauge.evaluate((el) => parseFloat(el.style.width));
      const first = await width();
      await page.waitForFunction((was) => parseFloat(document.querySelector(".gauge .bar i").style.width) > was, first);
    }),
  ));

// 200 % of 1280 px leaves 640 px for the page.
test("at 200 % zoom, and with wide text spacing, nothing is cut or overlaps", () =>
  withFake({}, (fake) =>
    withPage(
      fake.url,
      async (page) => {
        for (const screen of Object.keys(SCREENS)) {
          await go(page, screen);
          await assertFits(page, `${screen} at 200 %`);
          await assertInOrder(page, screen);
        }
        await page.evaluate(() => {
          // The values of WCAG 1.4.12. A constructed sheet is not stopped by the content security policy.
          const sheet = new CSSStyleSheet();
          sheet.replaceSync(
            `* { line-height: 1.5 !important; letter-spacing: .12em !important; word-spacing: .16em !important }
            p { margin-bottom: 2em !important }`,
          );
          document.adoptedStyleSheets = [sheet];
        });
        for (const screen of Object.keys(SCREENS)) {
          await go(page, screen);
          await assertFits(page, `${screen} with text spacing`);
          await assertInOrder(page, screen);
        }
      },
      { viewport: { width: 640, height: 400 } },
    ),
  ));

/** Cards lie beside or below each other, never on each other. */
async function assertInOrder(page, screen) {
  await settled(page);
  const overlaps = await page.evaluate(() => {
    const boxes = [...document.querySelectorAll("main .card")].map((el) => [
      el.querySelector("h2, label")?.textContent,
      el.getBoundingClientRect(),
    ]);
    const found = [];
    boxes.forEach(([name, a], i) =>
      boxes.slice(i + 1).forEach(([other, b]) => {
        if (a.left < b.right - 1 && b.left < a.right - 1 && a.top < b.bottom - 1 && b.top < a.bottom - 1)
          found.push(`${name} / ${other}`);
      }),
    );
    return found;
  });
  assert.deepEqual(overlaps, [], screen);
}

/** How many pixels of two pictures differ. */
async function differingPixels(context, pictures) {
  const page = await context.newPage();
  const urls = pictures.map((bytes) => `data:image/png;base64,${bytes.toString("base64")}`);
  const count = await page.evaluate(async (urls) => {
    const [a, b] = await Promise.all(
      urls.map(async (src) => {
        const image = Object.assign(new Image(), { src });
        await image.decode();
        const canvas = Object.assign(document.createElement("canvas"), { width: image.width, height: image.height });
        const context = canvas.getContext("2d");
        context.drawImage(image, 0, 0);
        return new Uint32Array(context.getImageData(0, 0, image.width, image.height).data.buffer);
      }),
    );
    return a.length === b.length ? a.reduce((sum, pixel, i) => sum + (pixel === b[i] ? 0 : 1), 0) : Infinity;
  }, urls);
  await page.close();
  return count;
}

// Two renders of one run are compared pixel by pixel; those of different machines have different fonts. The edges of
// rounded boxes are not always smoothed in the same way.
test("a screen that is left and entered again looks the same", () =>
  withFake({ tickMs: 0 }, (fake) =>
    withPage(fake.url, async (page, context) => {
      const render = async (screen) => {
        await go(page, screen);
        await page.evaluate(() => document.activeElement?.blur());
        return page.screenshot();
      };
      await settled(page);
      for (const screen of ["policies?name=login", "try", "client", "file"]) {
        const first = await render(screen);
        await go(page, "overview");
        const count = await differingPixels(context, [first, await render(screen)]);
        assert.ok(count < 100, `${screen}: ${count} pixels differ`);
        assert.ok(
          (await differingPixels(context, [first, await render("overview")])) > 10_000,
          "the comparison sees nothing",
        );
      }
    }),
  ));

/** The pictures of docs/reference/console.md: screen, theme and state. */
const PICTURES = {
  overview: ["overview", "light", {}],
  outage: ["overview", "dark", { down: true }],
  policies: ["policies?name=login", "light", {}],
  key: ["key?policy=login&key=user:123", "dark", {}],
  try: ["try", "light", {}],
  "client-key": ["client", "light", {}],
  file: ["file", "dark", {}],
};

if (process.env.SCREENSHOTS) {
  for (const [name, [screen, colorScheme, options]] of Object.entries(PICTURES)) {
    test(`the picture ${name} of the docs`, () =>
      withFake({ tickMs: 0, ...options }, (fake) =>
        withPage(
          fake.url,
          async (page, context) => {
            await go(page, screen);
            await page.evaluate(() => document.activeElement?.blur());
            const png = await page.screenshot();
            const canvas = await context.newPage();
            const webp = await canvas.evaluate(
              async (src) => {
                const image = Object.assign(new Image(), { src });
                await image.decode();
                const canvas = Object.assign(document.createElement("canvas"), {
                  width: image.width,
                  height: image.height,
                });
                canvas.getContext("2d").drawImage(image, 0, 0);
                return canvas.toDataURL("image/webp", 0.85);
              },
              `data:image/png;base64,${png.toString("base64")}`,
            );
            const bytes = Buffer.from(webp.split(",")[1], "base64");
            assert.ok(bytes.length < 60_000, `${bytes.length} bytes`);
            const folder = new URL("../../../../../docs/console/", import.meta.url);
            mkdirSync(folder, { recursive: true });
            writeFileSync(new URL(`${name}.webp`, folder), bytes);
          },
          { colorScheme },
        ),
      ));
  }
}
