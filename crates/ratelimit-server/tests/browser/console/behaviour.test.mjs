// How the page behaves: keyboard, hostile text, sessions, late answers, gaps, and a day of ticks.

import assert from "node:assert/strict";
import { test } from "node:test";
import { TOKEN, withFake } from "./fake.mjs";
import { assertQuiet, go, newContext, newPage, useBrowser, withPage } from "./harness.mjs";

useBrowser();
const PEEK = "#/key?policy=login&key=user:123";
const EVIL = '"><svg onload=alert(1)><img src=x onerror=alert(1)>';

test("everything can be done by the keyboard alone", () =>
  withFake({}, (fake) =>
    withPage(`${fake.url}#/policies`, async (page) => {
      const focused = (read) => page.waitForFunction(read);
      await page.getByRole("heading", { name: "Policies" }).waitFor();
      await page.keyboard.press("Tab");
      await focused(() => document.activeElement.textContent === "Skip to content");
      await page.keyboard.press("Enter");
      await focused(() => document.activeElement.id === "main" && location.hash === "#/policies");
      await page.keyboard.press("3");
      await focused(() => document.activeElement.id === "main" && location.hash === "#/key");
      await page.keyboard.press("Tab");
      await page.keyboard.type("login");
      await page.keyboard.press("Tab");
      await page.keyboard.type("user:123");
      await page.keyboard.press("Enter");
      await page.getByText(/Passes in/).waitFor();
      await page.keyboard.press("1");
      const chart = page.getByRole("group", { name: /Checks a second/ });
      await chart.focus();
      await page.keyboard.press("ArrowLeft");
      const said = () => page.evaluate(() => document.getElementById("say").textContent);
      assert.match(await said(), /^1 s ago, allowed [\d,]+, over \d+, denied \d+, unchecked 0, would deny \d+$/);
      await page.keyboard.press("Home");
      assert.match(await said(), /^299 s ago, allowed/);
      await page.keyboard.press("?");
      assert.ok(await page.getByRole("dialog", { name: "Keyboard" }).isVisible());
      for (let i = 0; i < 9; i++) {
        await page.keyboard.press("Tab");
        const isInside = await page.evaluate(
          () =>
            document.activeElement === document.body || document.getElementById("dlg").contains(document.activeElement),
        );
        assert.ok(isInside, "the focus leaves the dialog");
      }
      await page.keyboard.press("Escape");
      assert.ok(!(await page.locator("dialog").isVisible()));
      assertQuiet(page);
    }),
  ));

test("letters in fields are no shortcuts, and shortcuts can be switched off", () =>
  withFake({}, (fake) =>
    withPage(`${fake.url}#/key`, async (page) => {
      const key = page.getByLabel("Key", { exact: true });
      await key.pressSequentially("tp?/123456");
      assert.equal(await key.inputValue(), "tp?/123456");
      assert.match(page.url(), /#\/key$/);
      await page.getByRole("button", { name: "Keyboard" }).click();
      await page.getByLabel("Switch these shortcuts off").check();
      await page.getByRole("button", { name: "Keep" }).click();
      await page.waitForFunction(() => localStorage.shortcuts === "off");
      await page.evaluate(() => document.activeElement.blur());
      await page.keyboard.press("4");
      await page.keyboard.press("t");
      await page.reload();
      await page.getByRole("heading", { name: "Key", exact: true }).waitFor();
      await page.keyboard.press("4");
      assert.match(page.url(), /#\/key$/);
      assert.equal(await page.evaluate(() => document.documentElement.dataset.theme), undefined);
    }),
  ));

test("the slash goes to the filter of policies", () =>
  withFake({}, (fake) =>
    withPage(fake.url, async (page) => {
      await page.keyboard.press("/");
      await page.getByLabel("Filter policies").waitFor();
      await page.keyboard.press("/");
      await page.keyboard.type("login");
      await page.getByRole("status").filter({ hasText: /^1 (of 5)?$/ }).waitFor();
    }),
  ));

test("markup in keys, policies and addresses stays text", () => {
  const offenders = { policies: { [EVIL]: [{ key: EVIL, denied: 9, error: 0 }] }, shadow: {} };
  return withFake({ offenders }, (fake) =>
    withPage(fake.url, async (page) => {
      await page.getByText(EVIL).first().waitFor();
      const evil = encodeURIComponent(EVIL);
      const addresses = [
        `policies?name=${evil}`,
        `key?policy=${evil}&key=${evil}`,
        `key?policy=login&key=${evil}`,
        `try?a=${evil}`,
        evil,
        "constructor",
        "__proto__",
        "%",
        "try?a=%",
      ];
      for (const address of addresses) {
        await go(page, address);
        const elements = await page.locator("main img, main [onload], main [onerror]").count();
        assert.equal(elements, 0, address);
      }
      await go(page, `key?policy=login&key=${evil}`);
      await page.getByRole("button", { name: "Reset" }).click();
      await page.getByRole("dialog").getByText(EVIL).waitFor();
      // The fake refuses the limits and the unknown policy.
      assertQuiet(page, /status of 40[04]/);
    }),
  );
});

test("no script of the page can write HTML", () =>
  withFake({}, (fake) =>
    withPage(fake.url, async (page) => {
      const thrown = await page.evaluate(() => {
        try {
          document.createElement("div").innerHTML = "<b>x</b>";
          return null;
        } catch (error) {
          return error.name;
        }
      });
      assert.equal(thrown, "TypeError");
    }),
  ));

test("ten thousand policies are a hundred rows, and a filter finds all of them", () =>
  withFake({ policies: 10_000 }, (fake) =>
    withPage(`${fake.url}#/policies`, async (page) => {
      await page.getByText("100 of 10,000").waitFor();
      assert.equal(await page.locator("tbody tr").count(), 100);
      await page.getByLabel("Filter policies").fill("tenant-777");
      await page.getByText("11 of 10,000").waitFor();
      assert.equal(await page.locator("tbody tr").count(), 11);
    }),
  ));

test("a filter without a match says so, and clearing it shows all again", () =>
  withFake({}, (fake) =>
    withPage(`${fake.url}#/policies`, async (page) => {
      const filter = page.getByLabel("Filter policies");
      await filter.fill("nothing like it");
      await page.getByText("No policy matches nothing like it.").waitFor();
      await filter.fill("");
      await page.getByRole("link", { name: "comment" }).waitFor();
    }),
  ));

test("sorting is told to screen readers, and keeps the focus", () =>
  withFake({}, (fake) =>
    withPage(`${fake.url}#/policies`, async (page) => {
      const sort = page.getByRole("button", { name: "policy", exact: true });
      await sort.click();
      await page.locator("th[aria-sort=ascending]").waitFor();
      await page.waitForFunction(() => document.querySelector("tbody a")?.textContent === "api");
      assert.ok(await sort.evaluate((el) => el === document.activeElement));
    }),
  ));

test("live updates keep the focus on a link", () =>
  withFake({ tickMs: 0 }, (fake) =>
    withPage(fake.url, async (page) => {
      const link = page.getByRole("table", { name: "Busiest policies" }).getByRole("link", { name: "login" });
      await link.focus();
      await link.evaluate((el) => {
        el.marked = true;
      });
      fake.tick();
      await page.waitForFunction(
        () => !document.activeElement.marked && document.activeElement.textContent === "login",
      );
    }),
  ));

test("a pause stops the numbers, and the page does not grow", () =>
  withFake({ tickMs: 0 }, (fake) =>
    withPage(fake.url, async (page) => {
      const tile = page.locator(".tile b").first();
      const number = () => tile.innerText();
      const nodes = () => page.evaluate(() => document.querySelectorAll("*").length);
      await page.getByText("sha256~ce597ac46d430f16").first().waitFor();
      const [first, was] = [await nodes(), await number()];
      fake.tick(60);
      await page.waitForFunction((was) => document.querySelector(".tile b").innerText !== was, was);
      assert.ok(Math.abs((await nodes()) - first) < 40, `${first} nodes became ${await nodes()}`);
      await page.getByRole("button", { name: "Live: pause" }).click();
      const paused = await number();
      fake.tick(30);
      // The header shows that the ticks have come.
      fake.state.down = true;
      fake.tick();
      await page.getByText("Redis down").waitFor();
      assert.equal(await number(), paused);
      await page.getByRole("button", { name: "Paused: resume" }).click();
      await page.waitForFunction((was) => document.querySelector(".tile b").innerText !== was, paused);
    }),
  ));

test("a wrong limit is told beside its field", () =>
  withFake({}, (fake) =>
    withPage(`${fake.url}#/try`, async (page) => {
      const field = page.getByLabel("A", { exact: true });
      await field.fill("5/fortnight");
      await page.keyboard.press("Enter");
      await page.getByRole("alert").filter({ hasText: "expected a rate" }).waitFor();
      assert.equal(await field.getAttribute("aria-invalid"), "true");
      await field.fill("5/s");
      await page.keyboard.press("Enter");
      await page
        .getByText(/deni?e?s? \d+/)
        .first()
        .waitFor();
      assert.equal(await field.getAttribute("aria-invalid"), null);
    }),
  ));

test("the theme follows the system, and a choice survives a reload", () =>
  withFake({}, (fake) =>
    withPage(
      fake.url,
      async (page) => {
        const ground = () => page.evaluate(() => getComputedStyle(document.documentElement).backgroundColor);
        const dark = await ground();
        await page.emulateMedia({ colorScheme: "light" });
        const light = await ground();
        assert.notEqual(light, dark);
        await page.emulateMedia({ colorScheme: "dark" });
        await page.getByRole("button", { name: "Switch theme" }).click();
        assert.equal(await ground(), light);
        await page.reload();
        await page.locator("main h1").first().waitFor({ state: "attached" });
        assert.equal(await ground(), light);
      },
      { colorScheme: "dark" },
    ),
  ));

test("one signs in with the token, and comes to the screen of the address", () =>
  withFake({ signedIn: false }, (fake) =>
    withPage(`${fake.url}${PEEK}`, async (page) => {
      const token = page.getByLabel("Admin token");
      await token.fill("wrong");
      await page.keyboard.press("Enter");
      await page.getByRole("alert").filter({ hasText: "This is not the admin token." }).waitFor();
      assert.equal(await token.getAttribute("aria-invalid"), "true");
      await token.fill(TOKEN);
      await page.keyboard.press("Enter");
      await page.getByText(/Passes in/).waitFor();
      assert.equal(
        await page.evaluate((token) => JSON.stringify({ ...localStorage, ...sessionStorage }).includes(token), TOKEN),
        false,
      );
      assertQuiet(page, /status of 401/);
    }),
  ));

test("a token in the address is exchanged for a session, and leaves address and history", () =>
  withFake({ signedIn: false }, async (fake) => {
    const context = await newContext();
    const page = await newPage(context);
    await page.goto(`${fake.url}#token=${TOKEN}`);
    await page.getByRole("heading", { name: "Top denied keys" }).waitFor();
    assert.equal(page.url(), `${fake.url}#/overview`);
    await page.goto("about:blank");
    await page.goBack();
    await page.getByRole("heading", { name: "Top denied keys" }).waitFor();
    assert.ok(!page.url().includes(TOKEN));
    // An address with a token that is opened in a page that is already there.
    await page.evaluate((token) => {
      location.hash = `#token=${token}`;
    }, TOKEN);
    await page.waitForFunction(() => location.hash === "#/overview");
    // A wrong one ends no session, and is told without one.
    const wrong = () =>
      page.evaluate(() => {
        location.hash = "#token=wrong";
      });
    await wrong();
    await page.waitForFunction(() => location.hash === "#/overview");
    await page.getByRole("button", { name: "Sign out" }).click();
    await page.getByLabel("Admin token").waitFor();
    await wrong();
    await page.getByRole("alert").filter({ hasText: "not the admin token of this server" }).waitFor();
    await context.close();
  }));

test("a session that ends leads to the sign-in, and back to the same screen", () =>
  withFake({ signedIn: false }, (fake) =>
    withPage(`${fake.url}#token=${TOKEN}`, async (page) => {
      await page.getByRole("heading", { name: "Top denied keys" }).waitFor();
      await go(page, "key?policy=login&key=user:123");
      await page.getByText(/Passes in/).waitFor();
      fake.state.session = undefined;
      await page.getByRole("alert").filter({ hasText: "The session has ended." }).waitFor();
      assert.match(page.url(), /#\/key\?policy=login&key=user/);
      await page.getByLabel("Admin token").fill(TOKEN);
      await page.keyboard.press("Enter");
      await page.getByText(/Passes in/).waitFor();
    }),
  ));

test("signing out shows the form, and no numbers", () =>
  withFake({ signedIn: false }, (fake) =>
    withPage(`${fake.url}#token=${TOKEN}`, async (page) => {
      await page.getByRole("button", { name: "Sign out" }).click();
      await page.getByLabel("Admin token").waitFor();
      assert.equal(await page.locator("nav").isVisible(), false);
      await page.waitForFunction(() => true);
      for (let i = 0; i < 100 && fake.viewers.size; i++) await new Promise((resolve) => setTimeout(resolve, 20));
      assert.equal(fake.viewers.size, 0, "the stream stays open");
    }),
  ));

test("a read-only console says why a reset and a reload are not possible", () =>
  withFake({ mode: "read" }, (fake) =>
    withPage(`${fake.url}${PEEK}`, async (page) => {
      const reset = page.getByRole("button", { name: "Reset" });
      await reset.waitFor();
      assert.ok(await reset.isDisabled());
      assert.ok(await page.getByText("Read-only: the server runs with --console read; restart with --console write.").isVisible());
      await go(page, "file");
      assert.ok(await page.getByRole("button", { name: "Reload" }).isDisabled());
      assert.ok(await page.getByText("Read-only: the server runs with --console read; restart with --console write.").isVisible());
    }),
  ));

test("the newest answer counts, and a late one does not take the screen", () =>
  withFake({}, (fake) =>
    withPage(`${fake.url}#/policies`, async (page) => {
      await page.getByText("5 in all").waitFor();
      let release;
      const held = new Promise((resolve) => {
        release = resolve;
      });
      await page.route(/policies\?q=l&/, async (route) => {
        await held;
        await route.continue();
      });
      // No further call: the page would correct itself.
      await page.getByRole("button", { name: "Live: pause" }).click();
      const filter = page.getByLabel("Filter policies");
      await filter.fill("l");
      await filter.fill("comment");
      await page.getByText("1 of 5").waitFor();
      const late = page.waitForResponse(/policies\?q=l&/);
      release();
      await (await late).finished();
      await page.evaluate(() => new Promise((drawn) => requestAnimationFrame(() => requestAnimationFrame(drawn))));
      assert.equal(await page.locator("tbody tr").count(), 1);
      assertQuiet(page);
    }),
  ));

test("gaps in the history are gaps in the charts", () =>
  withFake({ tickMs: 0, gap: [1794840800, 1794840900] }, (fake) =>
    withPage(fake.url, async (page) => {
      await page.getByText("Decision latency").waitFor();
      const lines = (chart) => page.locator(`svg[aria-label^="${chart}"] path.ln`).count();
      // Two lines, each in two parts.
      assert.equal(await lines("Decision latency"), 4);
      assert.equal(await lines("Checks a second"), 3);
      // Ten seconds without a sample.
      fake.state.t += 10;
      fake.tick(3);
      await page.waitForFunction(() => document.querySelectorAll('svg[aria-label^="Checks"] path.ln').length === 6);
      await page.getByRole("group", { name: /Checks a second/ }).focus();
      for (let i = 0; i < 3; i++) await page.keyboard.press("ArrowLeft");
      assert.match(await page.evaluate(() => document.getElementById("say").textContent), /^13 s ago/);
    }),
  ));

test("a quiet server has no latency, not one of zero", () =>
  withFake({ tickMs: 0, gap: [0, 2e9] }, (fake) =>
    withPage(fake.url, async (page) => {
      await page.getByText("no check was timed").waitFor();
      assert.equal(await page.locator('svg[aria-label^="Decision"] path.ln').count(), 0);
    }),
  ));

test("the stream closes when the page is hidden for 30 s, and opens when it is shown", () =>
  withFake({ tickMs: 0 }, async (fake) => {
    const context = await newContext();
    const page = await newPage(context);
    await page.clock.install();
    await page.goto(fake.url);
    await page.getByRole("heading", { name: "Top denied keys" }).waitFor();
    const hide = (isHidden) =>
      page.evaluate((isHidden) => {
        Object.defineProperty(document, "hidden", { configurable: true, get: () => isHidden });
        document.dispatchEvent(new Event("visibilitychange"));
      }, isHidden);
    const viewers = async (count) => {
      for (let i = 0; i < 250 && fake.viewers.size !== count; i++)
        await new Promise((resolve) => setTimeout(resolve, 20));
      assert.equal(fake.viewers.size, count);
    };
    await viewers(1);
    // A tick between the steps: a silent stream is closed as well.
    const pass = async (seconds) => {
      await page.clock.runFor(seconds * 1000);
      fake.tick();
      await page.waitForFunction(async (t) => (await import("./live.js")).live.last.t >= t, fake.state.t);
    };
    await hide(true);
    for (let i = 0; i < 5; i++) await pass(5.5);
    await viewers(1);
    assert.notEqual(await page.locator("#store").innerText(), "not watching");
    await page.clock.runFor(5000);
    await page.locator("#store", { hasText: "not watching" }).waitFor();
    await viewers(0);
    await hide(false);
    await viewers(1);
    await context.close();
  }));

test("a full server says so, and the other screens work", () =>
  withFake({ full: true }, (fake) =>
    withPage(`${fake.url}#/policies`, async (page) => {
      await page.getByRole("alert").filter({ hasText: "32 pages watch already" }).waitFor();
      await page.getByText("5 in all").waitFor();
      fake.state.full = false;
      await page.getByText("Redis 7.0.15").waitFor();
      assert.equal(await page.locator("#notice").innerText(), "");
    }),
  ));

test("findings jump to their line", () =>
  withFake({}, (fake) =>
    withPage(`${fake.url}#/file`, async (page) => {
      await page.getByRole("button", { name: /shadowed-limit line 6/ }).click();
      const selected = await page
        .getByLabel("Policy file")
        .evaluate((el) => el.value.slice(el.selectionStart, el.selectionEnd));
      assert.equal(selected, 'search = "10/s; 1000/s"');
      await page.getByText("would be rejected").waitFor();
      await page.getByLabel("Policy file").fill('[policy]\nsearch = "10/s"\n');
      await page.getByText("would be accepted").waitFor();
      await page.getByText("search: 10/s burst 30 → 10/s; 1000/s").waitFor();
    }),
  ));

test("the walk to the client is drawn, with advice where a proxy is not trusted", () =>
  withFake({}, (fake) =>
    withPage(`${fake.url}#/client`, async (page) => {
      await page.getByText("ip:203.0.113.9").first().waitFor();
      const steps = await page.locator(".hops li").allInnerTexts();
      assert.equal(steps.length, 4);
      assert.match(steps[2], /203\.0\.113\.9[^]*this is the client/);
      await page.getByLabel("Trusted proxies").fill("192.0.2.0/24");
      await page.getByRole("button", { name: "Find the client" }).click();
      await page.getByText("add --trusted 10.0.0.1").waitFor();
    }),
  ));

test("an outage is an alert that is announced once, and ends", () =>
  withFake({ tickMs: 0 }, (fake) =>
    withPage(fake.url, async (page) => {
      fake.state.down = true;
      fake.tick();
      const alert = page.getByRole("alert").filter({ hasText: "Redis has not answered for" });
      await alert.waitFor();
      await alert.evaluate((el) => {
        el.marked = true;
      });
      fake.tick(3);
      await page.waitForFunction(() => document.querySelector("main .banner").marked);
      assert.ok(
        await page
          .getByRole("table", { name: "Busiest policies" })
          .locator(".by")
          .getByText("local fallback")
          .first()
          .isVisible(),
      );
      fake.state.down = false;
      fake.tick();
      await alert.waitFor({ state: "detached" });
    }),
  ));

test("a day of ticks leaves heap and nodes flat", () =>
  withFake({ tickMs: 0, policies: 2 }, (fake) =>
    withPage(fake.url, async (page) => {
      const size = async () => {
        await page.evaluate(() => globalThis.gc());
        return page.evaluate(() => [performance.memory.usedJSHeapSize, document.querySelectorAll("*").length]);
      };
      const newest = (t) =>
        page.waitForFunction(async (t) => {
          const { live } = await import("./live.js");
          return live.last.t === t;
        }, t);
      const send = async (count) => {
        for (let sent = 0; sent < count; sent += 1200) {
          fake.tick(1200);
          await newest(fake.state.t);
        }
      };
      await send(3600);
      const [heap, nodes] = await size();
      await send(86_400 - 3600);
      const [heapLater, nodesLater] = await size();
      assert.ok(heapLater < heap + 3_000_000, `${heap} bytes became ${heapLater}`);
      assert.ok(Math.abs(nodesLater - nodes) < 40, `${nodes} nodes became ${nodesLater}`);
      const length = await page.evaluate(async () => (await import("./live.js")).live.samples.length);
      assert.equal(length, 300);
      assertQuiet(page);
    }),
  ));

const axis = (page) =>
  page
    .locator(".run")
    .first()
    .locator("svg text")
    .evaluateAll((all) => all.slice(-4).map((one) => one.textContent));

test("the times of an access log are moments in UTC, and those of a trace are seconds", () =>
  withFake({}, (fake) =>
    withPage(`${fake.url}#/try`, async (page) => {
      const run = async (from, step) => {
        await page.getByLabel("Paste").check();
        const lines = Array.from({ length: 7 }, (_, i) => JSON.stringify({ t: from + i * step, key: "a" }));
        await page.getByLabel("Lines of a trace or of an access log").fill(lines.join("\n"));
        await page.locator(".run").evaluateAll((all) => all.map((one) => one.remove()));
        await page.getByRole("button", { name: "Run" }).click();
        await page.locator(".run svg text").first().waitFor();
      };
      const noon = Date.UTC(2026, 10, 17, 12) / 1000;
      await run(noon, 10);
      assert.deepEqual(await axis(page), ["12:00:15", "12:00:30", "12:00:45", "12:01:00"]);
      assert.ok(await page.getByText("hits, times in UTC").first().isVisible());
      assert.equal(await page.locator("legend").innerText(), "Traffic");
      await run(noon, 36_000);
      assert.deepEqual(await axis(page), ["11-18 12:00", "11-19 00:00", "11-19 12:00", "11-20 00:00"]);
      await run(noon, 300_000);
      assert.match((await axis(page)).join(), /^(2026-1[12]-\d\d,?){4}$/);
      await run(0.5, 1);
      assert.deepEqual(await axis(page), ["0", "2 s", "4 s", "6 s"]);
      assert.equal(await page.getByText("times in UTC").count(), 0);
    }),
  ));

const scaleOf = (page, chart) =>
  page
    .locator(`svg[aria-label^="${chart}"] text[text-anchor=end]`)
    .evaluateAll((all) => all.map((one) => one.textContent));

test("scales of counts have whole steps", () =>
  withFake({ tickMs: 0, idle: true, limit: 1 }, (fake) =>
    withPage(fake.url, async (page) => {
      await page.getByText("Decision latency").waitFor();
      assert.deepEqual(await scaleOf(page, "Checks a second"), ["0", "1", "now"]);
      await go(page, PEEK.slice(2));
      await page.getByText(/Passes/).waitFor();
      assert.deepEqual(await scaleOf(page, "Permits that pass"), ["0", "1"]);
      fake.state.limit = 9;
      await page.waitForFunction(() =>
        [...document.querySelectorAll('svg[aria-label^="Permits"] text')].some((one) => one.textContent === "5"),
      );
      assert.deepEqual(await scaleOf(page, "Permits that pass"), ["0", "5", "10"]);
    }),
  ));

test("a key of a shadow policy passes now, and the page says for how long it would be denied", () =>
  withFake({ shadow: true }, (fake) =>
    withPage(`${fake.url}${PEEK}`, async (page) => {
      await page.getByText("shadow: would deny").waitFor();
      const headline = page.locator(".verdict b");
      assert.match(await headline.innerText(), /^Passes now \(shadow\); would be denied for \d+\.?\d* s$/);
      await go(page, `${PEEK.slice(2)}&permits=9`);
      await page.getByText("Passes now (shadow); would never pass").waitFor();
    }),
  ));

test("every wait of a key counts down by one clock", () =>
  withFake({}, (fake) =>
    withPage(`${fake.url}${PEEK}`, async (page) => {
      await page.getByText("denies for").waitFor();
      // No further peek: the page alone counts.
      await page.getByRole("button", { name: "Live: pause" }).click();
      await page.getByText("Values", { exact: true }).click();
      const waits = () =>
        page.evaluate(() =>
          [
            document.querySelector(".verdict b"),
            document.querySelector(".gauge small"),
            document.querySelector("tbody td.r"),
          ].map((one) => Number(one.textContent.match(/([\d.]+) s$/)?.[1])),
        );
      // The curve is another call than the verdict, so their answers differ by the time between both.
      const differ = ([first, ...others]) => Math.max(...others.map((wait) => Math.abs(wait - first)));
      const before = await waits();
      assert.ok(differ(before) < 0.4, `${before}`);
      await page.waitForFunction(
        (was) => parseFloat(document.querySelector(".verdict b").textContent.slice(10)) < was - 0.9,
        before[0],
      );
      const after = await waits();
      assert.ok(differ(after) < 0.4, `${after}`);
    }),
  ));

test("a server that comes back with other rights is known to the page", () =>
  withFake({ mode: "read" }, (fake) =>
    withPage(`${fake.url}${PEEK}`, async (page) => {
      const reset = page.getByRole("button", { name: "Reset" });
      await reset.waitFor();
      assert.ok(await reset.isDisabled());
      fake.state.mode = "write";
      for (const viewer of fake.viewers) viewer.destroy();
      await page.waitForFunction(() => document.querySelector("button.danger")?.disabled === false);
    }),
  ));

test("a missing key of a limit is told by its field, without calls that are refused again", () =>
  withFake({ by: ["ip"] }, (fake) =>
    withPage(`${fake.url}${PEEK}`, async (page) => {
      const field = page.getByLabel("Key for limits by ip");
      await page.getByRole("alert").filter({ hasText: "fill in “Key for limits by ip”" }).waitFor();
      assert.ok(await field.evaluate((el) => el === document.activeElement));
      assert.equal(await field.getAttribute("aria-invalid"), "true");
      assert.ok(await page.getByRole("button", { name: "Reset" }).isEnabled());
      const before = fake.state.peeks;
      // More than one period of the calls.
      await new Promise((resolve) => setTimeout(resolve, 3200));
      assert.equal(fake.state.peeks, before);
      await field.fill("192.0.2.7");
      await page.keyboard.press("Enter");
      await page.getByText(/Passes in/).waitFor();
      assert.equal(await page.getByText("Key is empty").count(), 0);
      await go(page, "key?policy=login&keys.ip=192.0.2.7");
      await page.getByText("limits without a name show the budget of the address of this browser").waitFor();
      assertQuiet(page, /status of 400/);
    }),
  ));

test("a reset that fails stays told beside its button", () =>
  withFake({ down: true, tickMs: 0 }, (fake) =>
    withPage(`${fake.url}${PEEK}`, async (page) => {
      await page.getByText("Redis did not decide: these are the local budgets").waitFor();
      await page.getByRole("button", { name: "Reset" }).click();
      const dialog = page.getByRole("dialog", { name: "Reset this key?" });
      await dialog.getByText("Redis is down: only this server.").waitFor();
      await dialog.getByRole("button", { name: "Reset" }).click();
      await page.getByRole("alert").filter({ hasText: "only this server has reset the key" }).waitFor();
      const again = page.waitForResponse(/explain/);
      await again;
      assert.ok(await page.getByRole("alert").filter({ hasText: "only this server has reset the key" }).isVisible());
    }),
  ));

test("settings that apply on reload are a difference, and a busy server is asked again", () =>
  withFake({ busy: true, config: { hidden: true, reason: "the file is not UTF-8" } }, (fake) =>
    withPage(`${fake.url}#/file`, async (page) => {
      await page.getByText("The text is hidden: the file is not UTF-8.").waitFor();
      await page.getByRole("alert").filter({ hasText: "another text is being checked" }).waitFor();
      fake.state.busy = false;
      await page.getByText("would be rejected").waitFor();
      await page.getByLabel("Policy file").fill('trusted = ["192.0.2.0/24"]\n');
      await page.getByText(/^applies on reload/).waitFor();
      const shown = await page.locator("div", { has: page.getByText("applies on reload") }).last().innerText();
      assert.match(shown, /applies on reload\s+trusted/);
    }),
  ));

test("a policy whose keys cannot be named says why, in place of a link", () =>
  withFake({}, (fake) =>
    withPage(`${fake.url}#/policies?name=comment`, async (page) => {
      await page.getByText("No peek: the keys of an Envoy rule are made of descriptors.").waitFor();
      assert.equal(await page.getByRole("link", { name: "Peek at a key" }).count(), 0);
      await go(page, "policies?name=login");
      await page.getByRole("link", { name: "Peek at a key" }).waitFor();
    }),
  ));

test("a rejected policy file is an alert with a way to its findings", () =>
  withFake({ tickMs: 0 }, (fake) =>
    withPage(fake.url, async (page) => {
      await page.getByText("connection attempts").waitFor();
      assert.equal(await page.getByRole("alert").count(), 0);
      fake.state.reload = { result: "rejected", at: fake.state.t };
      fake.tick();
      const alert = page.getByRole("alert").filter({ hasText: "The policy file is rejected" });
      await alert.waitFor();
      await alert.evaluate((el) => {
        el.marked = true;
      });
      fake.tick(3);
      await page.waitForFunction(
        async (t) => (await import("./live.js")).live.last.t === t && document.querySelector("main .banner").marked,
        fake.state.t,
      );
      await page.getByText("Keys are digests; --offender-keys shown shows them.").waitFor();
      await alert.getByRole("link", { name: "See its findings" }).click();
      await page.getByRole("heading", { name: "Policy file" }).waitFor();
    }),
  ));

test("typed text stays when the file changes on disk, and when the screen is left", () =>
  withFake({ tickMs: 0 }, (fake) =>
    withPage(`${fake.url}#/file`, async (page) => {
      const editor = page.getByLabel("Policy file");
      await editor.waitFor();
      await page.locator("#store", { hasText: "Redis" }).waitFor();
      const reloaded = () => {
        fake.state.t++;
        fake.state.reload = { result: "ok", at: fake.state.t };
        fake.tick();
      };
      // A reload of the same file is no change.
      const checked = page.waitForResponse(/check-config/);
      reloaded();
      await checked;
      assert.equal(await page.getByText("The file on disk changed.").count(), 0);
      await editor.fill("mine = 1");
      fake.state.text = "theirs = 2";
      reloaded();
      await page.getByText("The file on disk changed.").waitFor();
      assert.equal(await editor.inputValue(), "mine = 1");
      await go(page, "overview");
      await go(page, "file");
      await page.getByText("This is the text that you typed.").waitFor();
      assert.equal(await editor.inputValue(), "mine = 1");
      await page.getByRole("button", { name: "Reload" }).click();
      await page.getByRole("dialog").getByText("The text typed here is not part of it.").waitFor();
      await page.keyboard.press("Escape");
      await page.getByRole("button", { name: "Load the file" }).click();
      await page.waitForFunction(() => document.querySelector("textarea").value === "theirs = 2");
      assert.equal(await page.getByRole("button", { name: "Load the file" }).count(), 0);
      await go(page, "client");
      await page.getByLabel("Peer").fill("192.0.2.1:1");
      await go(page, "file");
      assert.equal(await editor.inputValue(), "theirs = 2");
      await go(page, "client");
      assert.equal(await page.getByLabel("Peer").inputValue(), "192.0.2.1:1");
    }),
  ));
