// Every number of every screen: a load of known counts runs, and the page is read and compared.

import assert from "node:assert/strict";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { assertQuiet, go, useBrowser, withPage } from "./harness.mjs";
import { API, command, Redis, TOKEN, until, withServer } from "./server.mjs";

useBrowser();

const CONFIG = `trusted = ["10.0.0.0/8"]
offender-keys = "shown"

[policy]
login = "5/d"
quick = "5/min; 20/h"

[policy.soft]
limits = "10/d"
throttle = "soft 50%"

[policy.watch]
limits = "3/d"
shadow = true

[policy.half]
limits = "4/d"
enforced = 50
`;

/** Runs a test with a server that has a file of settings. */
async function withFile(text, run, args = []) {
  const dir = mkdtempSync(join(tmpdir(), "console-file-"));
  const path = join(dir, "server.toml");
  writeFileSync(path, text);
  try {
    await withServer(["--config", path, ...args], (server) =>
      withPage(`${server.url}#token=${TOKEN}`, (page) => run(page, server, path)),
    );
  } finally {
    rmSync(dir, { recursive: true });
  }
}

/** Reads the ticks of a server beside the page. */
async function collect(server) {
  const leave = new AbortController();
  const response = await fetch(`${server.origin}/console/api/live`, {
    headers: { authorization: `Bearer ${TOKEN}` },
    signal: leave.signal,
  });
  const ticks = [];
  const reading = (async () => {
    let text = "";
    for await (const part of response.body.pipeThrough(new TextDecoderStream())) {
      const blocks = (text + part).split("\n\n");
      text = blocks.pop();
      for (const block of blocks.filter((one) => one.startsWith("event: tick")))
        ticks.push(JSON.parse(block.match(/^data: ?(.*)$/m)[1]));
    }
  })().catch(() => {});
  await until(() => ticks.length > 0, "the first tick");
  return {
    ticks,
    stop: async () => {
      leave.abort();
      await reading;
    },
  };
}

const int = (n) => Math.round(n).toLocaleString("en");
/** A rate as the page writes it. */
const rate = (n) => (n >= 9.95 ? int(n) : n > 0 ? n.toFixed(n < 0.095 ? 2 : 1) : "0");
const share = (part, whole) => {
  const percent = (100 * part) / whole;
  return whole ? `${percent.toFixed(percent > 0 && percent < 9.95 ? 1 : 0)} %` : "–";
};
/** A time that the page writes, in microseconds. */
function micros(text) {
  const units = { us: 1, ms: 1e3, s: 1e6, min: 6e7, h: 3.6e9, d: 8.64e10 };
  return [...text.matchAll(/([\d.]+) (us|ms|s|min|h|d)\b/g)].reduce((sum, [, n, unit]) => sum + n * units[unit], 0);
}
const tileOf = (page, name) => page.locator(".tile").filter({ has: page.getByRole("heading", { name, exact: true }) });
const totalOf = async (page, name) =>
  (await tileOf(page, name).locator("> small").innerText()).match(/^([\d,]+) in/)[1];

const LOAD = [
  ["login", "alice", 8],
  ["login", "bob", 6],
  ["soft", "carol", 17],
  ["watch", "dave", 7],
];
const TOTALS = { checks: 38, allowed: 27, over: 5, denied: 6, unchecked: 0, "would deny": 4 };

test("the totals of the overview are the counts of the load, policy by policy", () =>
  withFile(CONFIG, async (page, server) => {
    await until(
      async () => (await tileOf(page, "checks").count()) && /in/.test(await tileOf(page, "checks").innerText()),
      "the first tick",
    );
    const { ticks, stop } = await collect(server);
    const statuses = {};
    for (const [policy, key, times] of LOAD) statuses[key] = await server.check(policy, key, times);
    assert.deepEqual(
      Object.values(statuses).map((all) => all.filter((one) => one === 200).length),
      [5, 5, 15, 7],
    );
    await until(
      async () => (await totalOf(page, "checks")) === "38",
      `38 checks, not ${await totalOf(page, "checks")}`,
    );
    for (const [name, count] of Object.entries(TOTALS)) assert.equal(await totalOf(page, name), String(count), name);
    const counted = (policy, key) =>
      Math.round(
        ticks.reduce(
          (sum, tick) => sum + ((tick.top.find((one) => one.policy === policy)?.[key] ?? 0) * tick.elapsedMicros) / 1e6,
          0,
        ),
      );
    assert.deepEqual(
      ["login", "soft", "watch"].map((policy) => counted(policy, "checks")),
      [14, 17, 7],
    );
    assert.deepEqual(
      ["login", "soft", "watch"].map((policy) => counted(policy, "denied")),
      [4, 2, 0],
    );
    assert.equal(counted("watch", "wouldDeny"), 4);
    await stop();

    // The most denied keys, with their counts, in descending order. Shadow denials are marked.
    const rows = page.getByRole("table", { name: "Top denied keys" }).locator("tbody tr");
    await until(async () => (await rows.count()) === 4, "four keys");
    const shown = await rows.evaluateAll((all) =>
      all.map((row) => [
        row.querySelector("code").textContent,
        row.querySelector("td.r").textContent,
        row.querySelector(".badge")?.textContent ?? "",
      ]),
    );
    assert.deepEqual(shown, [
      ["dave", "4", "shadow"],
      ["alice", "3", ""],
      ["carol", "2", ""],
      ["bob", "1", ""],
    ]);
    await page.getByRole("link", { name: "alice", exact: true }).click();
    await page.getByText("0 of 5 remaining").waitFor();
    assertQuiet(page);
  }));

/** Checks keys at a steady pace until it is stopped. */
function steadyLoad(server, keys) {
  let isOver = false;
  const run = (async () => {
    for (let i = 0; !isOver; i++) await server.check(...keys[i % keys.length]);
  })();
  return async () => {
    isOver = true;
    await run;
  };
}

test("the rates of overview and policies are those that the server sends", async () => {
  const redis = await Redis.start();
  const config = `${CONFIG}\n[policy.fetched]\nlimits = "100000/d"\nprefetch = "10%"\n`;
  try {
    await withFile(
      config,
      async (page, server) => {
        await page.locator("#store", { hasText: /Redis \d/ }).waitFor();
        const stop = steadyLoad(server, [
          ["login", "alice"],
          ["watch", "dave"],
          ["soft", "carol"],
          ["fetched", "erin"],
          ["fetched", "erin"],
        ]);
        const top = page.getByRole("table", { name: "Busiest policies" }).locator("tbody tr");
        await until(
          async () =>
            (await top.count()) === 4 &&
            /prefetched units/.test(await top.filter({ hasText: "fetched" }).first().innerText()),
          "four busy policies",
        );
        // The last tick stays while the numbers are read. It is drawn in the next frame.
        const tick = await page.evaluate(async () => {
          const { close, live } = await import("./live.js");
          close("hidden");
          await new Promise((drawn) => requestAnimationFrame(() => requestAnimationFrame(drawn)));
          return live.last;
        });
        const expected = tick.top.map((one) => [one.policy, rate(one.checks), share(one.denied, one.checks)]);
        const shown = await top.evaluateAll((rows) =>
          rows.map((row) => [
            row.querySelector("a").textContent,
            ...[...row.querySelectorAll("td.r")].map((cell) => cell.textContent),
          ]),
        );
        assert.deepEqual(shown, expected);
        for (const [index, one] of tick.top.entries()) {
          const parts = {
            Redis: one.store,
            "prefetched units": one.prefetched,
            "deny cache": one.denyCached,
            "local fallback": one.fallback,
          };
          const sum = Object.values(parts).reduce((all, n) => all + n);
          assert.ok(Math.abs(sum - one.checks) < 0.01, `${one.policy}: ${JSON.stringify(parts)} of ${one.checks}`);
          const present = Object.entries(parts).filter(([, n]) => n > 0);
          const words = present.map(([name, n]) => (present.length > 1 ? `${name} ${share(n, sum)}` : name)).join(", ");
          assert.equal(await top.nth(index).locator(".by small").innerText(), words || "–", one.policy);
        }
        for (const [name, key] of Object.entries({
          checks: "checks",
          allowed: "allowed",
          over: "over",
          denied: "denied",
          unchecked: "unchecked",
          "would deny": "wouldDeny",
        })) {
          assert.equal(
            await tileOf(page, name)
              .locator("b")
              .evaluate((el) => el.firstChild.textContent),
            rate(tick[key]),
            name,
          );
        }
        assert.ok(Math.abs(tick.checks - tick.allowed - tick.over - tick.denied) < 0.01);
        const watched = page
          .locator(".stack .c-shadow")
          .filter({ has: page.getByRole("link", { name: "watch", exact: true }) });
        const { checks, wouldDeny } = tick.watched.find((one) => one.policy === "watch");
        assert.equal(await watched.locator("b").innerText(), share(wouldDeny, checks));

        const answer = page.waitForResponse(/api\/policies\?/);
        await go(page, "policies");
        const { policies, total } = await (await answer).json();
        await page
          .getByRole("status")
          .filter({ hasText: `${total} in all` })
          .waitFor();
        const rows = await page
          .locator("tbody tr")
          .evaluateAll((all) =>
            all.map((row) => [
              row.querySelector("a").textContent,
              ...[...row.querySelectorAll("td.r")].map((cell) => cell.textContent),
            ]),
          );
        assert.deepEqual(
          rows,
          policies.map((one) => [
            one.name,
            rate(one.checks),
            share(one.denied, one.checks),
            one.wouldDeny ? share(one.wouldDeny, one.checks) : "",
          ]),
        );
        await stop();

        const detail = page.waitForResponse(/api\/policies\/soft/);
        await go(page, "policies?name=soft");
        const soft = await (await detail).json();
        await page.locator(".first .copy").first().waitFor();
        const facts = await page
          .locator(".first dl")
          .evaluate((list) =>
            Object.fromEntries(
              [...list.querySelectorAll("dt")].map((name) => [name.textContent, name.nextSibling.textContent]),
            ),
          );
        assert.equal(facts.throttle, "soft 50%");
        assert.equal(facts["failure mode"], soft.onFailure);
        assert.equal(facts["cost of a hit"], "1");
        assert.equal(await page.locator(".first .block").first().innerText(), soft.limits[0].words);
      },
      ["--redis", redis.url],
    );
  } finally {
    await redis.close();
  }
});

test("the countdown and the gauges of a key are those of explain", () =>
  withFile(CONFIG, async (page, server) => {
    await server.check("quick", "mallory", 7);
    const before = await server.explain("quick", "mallory");
    await go(page, "key?policy=quick&key=mallory");
    await page.getByText(/Passes in/).waitFor();
    // The pause keeps the page from peeking again, and the countdowns go on.
    await page.getByRole("button", { name: "Live: pause" }).click();
    const read = () =>
      page.evaluate(() => ({
        wait: document.querySelector(".verdict b").textContent,
        reason: document.querySelector(".verdict p").textContent,
        limits: [...document.querySelectorAll(".gauge")].map((gauge) => [
          gauge.querySelector("code").textContent,
          gauge.querySelector("strong").textContent,
          gauge.querySelector("small:last-child").textContent,
          parseFloat(gauge.querySelector("i").style.width),
        ]),
      }));
    const shown = await read();
    const after = await server.explain("quick", "mallory");
    const isBetween = (value, low, high, what) =>
      assert.ok(value >= low - 3e5 && value <= high + 3e5, `${what}: ${low} <= ${value} <= ${high}`);
    isBetween(micros(shown.wait), after.passesAfterMicros, before.passesAfterMicros, "passes in");
    assert.equal(shown.reason, after.reason);
    for (const [i, limit] of after.limits.entries()) {
      const [text, remaining, refill, width] = shown.limits[i];
      assert.equal(text, limit.text);
      assert.equal(remaining, `${limit.remaining} of ${limit.limit} remaining`);
      // Longer times are shown in whole seconds.
      isBetween(
        micros(refill.split(",")[0]),
        limit.resetAfterMicros - 5e5,
        before.limits[i].resetAfterMicros + 5e5,
        text,
      );
      assert.ok(
        width >= (100 * limit.remaining) / limit.limit - 0.1 &&
          width <= (100 * (limit.remaining + 1)) / limit.limit + 0.1,
        `${text}: ${width} %`,
      );
    }
    await until(async () => micros((await read()).wait) < micros(shown.wait), "the countdown moves");
    assertQuiet(page);
  }));

const ALGORITHMS = {
  token_bucket: "token_bucket 6/min",
  burst: "token_bucket 60/h burst 6",
  leaky_bucket: "leaky_bucket 6/min queue 6",
  fixed_window: "fixed_window 6/d",
  sliding_window_log: "sliding_window_log 6/min",
  sliding_window_counter: "sliding_window_counter 6/min",
  two: "6/min; fixed_window 8/d",
  slots: "concurrency 2 lease 40s",
};

test("the points of the forecast are those of explain, for every algorithm", () =>
  withFile(
    `[policy]\n${Object.entries(ALGORITHMS)
      .map(([name, text]) => `${name} = "${text}"`)
      .join("\n")}\n`,
    async (page, server) => {
      await page.locator("#store", { hasText: "memory" }).waitFor();
      await page.keyboard.press("p");
      for (const name of Object.keys(ALGORITHMS)) {
        await server.check(name, "k", 5);
        const points = async (permits) => (await server.explain(name, "k", permits)).passesAfterMicros;
        const before = await points(1);
        const answered = page.waitForResponse(/api\/forecast/);
        await go(page, `key?policy=${name}&key=k`);
        await answered;
        const rows = page.getByRole("table", { name: "Permits that pass", includeHidden: true }).locator("tbody tr");
        await rows.first().waitFor({ state: "attached" });
        const shown = await rows.evaluateAll((all) =>
          all.map((row) => [
            Number(row.cells[0].textContent),
            row.cells[1].title && Number.parseInt(row.cells[1].title, 10),
            row.cells[1].textContent,
          ]),
        );
        assert.ok(shown.length > 0, name);
        if (name === "slots") assert.ok(await page.getByText("The latest times").isVisible());
        assert.ok(shown[0][1] <= before + 1000, `${name}: ${shown[0][1]} <= ${before}`);
        const now = performance.now();
        for (const [permits, after, text] of shown) {
          const explained = await points(permits);
          const elapsed = (performance.now() - now) * 1e3;
          if (explained === null || text === "never") {
            assert.deepEqual([explained, text], [null, "never"], `${name} ${permits}`);
            continue;
          }
          // Time passes between the two: a wait becomes shorter by it, never longer.
          assert.ok(
            explained <= after + 1000 && explained >= after - elapsed - 5e6,
            `${name} ${permits}: ${explained} after ${after}`,
          );
          if (after === 0) assert.equal(text, "now");
        }
      }
    },
  ));

test("the counts of a trial are those of simulate", () =>
  withFile(CONFIG, async (page) => {
    for (const [a, b, kind, hits, seed, throttle] of [
      ["token_bucket 10/s burst 20", "fixed_window 10/s", "burst", 72, 1, "hard"],
      ["leaky_bucket 5/s queue 10", "sliding_window_log 5/s", "poisson", 300, 7, "hard"],
      ["10/s; fixed_window 30/min", "sliding_window_counter 10/s", "boundary", 150, 3, "soft 50%"],
    ]) {
      await go(page, `try?${new URLSearchParams({ a, b, kind, hits, seed, throttle })}`);
      await page.locator(".run").nth(1).waitFor();
      const cli = command(
        "simulate",
        "--limit",
        a,
        "--limit",
        b,
        "--throttle",
        throttle,
        "--traffic",
        kind,
        "--hits",
        String(hits),
        "--seed",
        String(seed),
      );
      const lines = cli.stderr.trim().split("\n");
      const runs = page.locator(".run");
      for (const [i, line] of lines.entries()) {
        const counts = Object.fromEntries(
          [
            ...line
              .split(": ")
              .at(-1)
              .matchAll(/(\d+) (allowed|delayed|over|denied|impossible)/g),
          ].map(([, n, outcome]) => [outcome, Number(n)]),
        );
        const shown = await runs.nth(i).locator(".legend em").allInnerTexts();
        const read = Object.fromEntries(
          shown
            .map((text) => text.match(/^([\d,]+) (\w+)$/))
            .filter(Boolean)
            .map(([, n, outcome]) => [outcome, Number(n.replace(",", ""))]),
        );
        assert.deepEqual(read, Object.fromEntries(Object.entries(counts).filter(([, n]) => n > 0)), line);
        const longest = Number(line.match(/longest wait ([\d.]+)s/)?.[1] ?? 0) * 1e6;
        const wait = shown.find((text) => text.includes("wait"));
        assert.ok(Math.abs(micros(wait) - longest) <= longest / 100, `${wait}: ${line}`);
        // The bars are the hits.
        const label = await runs.nth(i).locator("svg[role=img]").getAttribute("aria-label");
        assert.ok(
          label.endsWith(
            `${counts.allowed} allowed, ${counts.delayed} delayed, ${counts.over} over, ${counts.denied} denied`,
          ),
          label,
        );
      }
      const answers = cli.stdout
        .trim()
        .split("\n")
        .map((text) => JSON.parse(text));
      const passed = [answers.slice(0, hits), answers.slice(hits)].map((run) => run.map(({ allowed }) => allowed));
      const only = (x, y) => x.filter((allowed, i) => allowed && !y[i]).length;
      const text = await page.locator(".verdict p").innerText();
      assert.equal(
        text,
        `${only(passed[0], passed[1])} pass under A alone, ${only(passed[1], passed[0])} under B alone`,
      );
    }
    assertQuiet(page);
  }));

test("the client key and its walk are those of the command client-key", () =>
  withFile(CONFIG, async (page) => {
    await page.locator("#store", { hasText: "memory" }).waitFor();
    for (const [headers, peer, trusted] of [
      [["X-Forwarded-For: 6.6.6.6, 203.0.113.9, 10.0.0.5", "X-Real-IP: 203.0.113.9"], "10.0.0.1:4711", "10.0.0.0/8"],
      [["X-Forwarded-For: 6.6.6.6"], "10.0.0.1:4711", "192.0.2.0/24"],
      [["X-Forwarded-For: 2001:db8::1"], "10.0.0.1:1", "10.0.0.0/8"],
      [["X-Forwarded-For: nonsense, 10.0.0.7"], "10.0.0.1:1", "10.0.0.0/8"],
    ]) {
      await go(page, "client");
      await page.getByLabel("Header lines").fill(headers.join("\n"));
      await page.getByLabel("Peer").fill(peer);
      await page.getByLabel("Trusted proxies").fill(trusted);
      const answered = page.waitForResponse(
        async (response) =>
          /client-key/.test(response.url()) && JSON.parse(response.request().postData()).headers === headers.join("\n"),
      );
      await page.getByRole("button", { name: "Find the client" }).click();
      await answered;
      const cli = command(
        "client-key",
        "--walk",
        "--trusted",
        trusted,
        "--peer",
        peer,
        ...headers.flatMap((line) => ["--header", line]),
      );
      const told = JSON.parse(cli.stdout);
      const steps = page.locator(".hops li");
      await until(
        async () =>
          (await steps.count()) === told.steps.length &&
          (await page.locator(".verdict b").innerText()).includes(told.key ?? "No client"),
        `${told.key}`,
      );
      assert.deepEqual(
        await steps.evaluateAll((all) =>
          all.map((one) => [one.querySelector("code").textContent, one.querySelector("span small").textContent.trim()]),
        ),
        told.steps.map(({ value, from }) => [value, from]),
      );
      const hits = await page.locator(".hops .hit code").allInnerTexts();
      assert.deepEqual(
        hits,
        told.steps.filter(({ verdict }) => ["client", "peer_untrusted"].includes(verdict)).map(({ value }) => value),
      );
    }
    assertQuiet(page);
  }));

const MISTAKES = `trusted = ["10.0.0.0/8"]

[policy]
search = "10/s; 1000/s"

[policy.login]
limits = "5/fortnight; 20/h"

[policy.api]
limit = "60/min; 1000/d"
`;

test("the findings of the file are those of check-config, and a reload applies the file", () =>
  withFile(CONFIG, async (page, server, path) => {
    await page.locator("#store", { hasText: "memory" }).waitFor();
    await go(page, "file");
    const editor = page.getByLabel("Policy file");
    assert.equal(await editor.inputValue(), CONFIG);
    await page.getByText("would be accepted").waitFor();
    await editor.fill(MISTAKES);
    await page.getByText("would be rejected").waitFor();
    const wrong = `${path}.wrong.toml`;
    writeFileSync(wrong, MISTAKES);
    const cli = command("check-config", wrong);
    const told = `${cli.stdout}${cli.stderr}`
      .split("\n")
      .map((line) => line.match(/:(\d+): (\w+)\[([\w-]+)\]: (.*)$/))
      .filter(Boolean);
    assert.equal(told.length, 4);
    const shown = await page
      .locator(".find")
      .evaluateAll((all) =>
        all.map((one) => [
          one.querySelector("small").textContent.trim(),
          one.querySelector(".badge").textContent,
          one.querySelector(".block").textContent,
        ]),
      );
    assert.deepEqual(
      shown,
      told.map(([, line, , code, message]) => [`line ${line}`, code, message]),
    );

    const changed = CONFIG.replace('login = "5/d"', 'login = "6/d"\nextra = "1/s"').replace(
      '[policy.half]\nlimits = "4/d"\nenforced = 50\n',
      "",
    );
    await editor.fill(changed);
    await page.getByText("would be accepted").waitFor();
    const changes = page.locator(".card", {
      has: page.getByRole("heading", { name: "Difference to the running policies" }),
    });
    await until(async () => /added/.test(await changes.innerText()), "the difference");
    const text = await changes.innerText();
    assert.match(text, /added\s+extra/);
    assert.match(text, /changed\s+login: .*5\/d.* → .*6\/d/);
    assert.match(text, /removed\s+half/);
    writeFileSync(path, changed);
    await page.getByRole("button", { name: "Reload" }).click();
    await page.getByRole("dialog").getByRole("button", { name: "Reload" }).click();
    await page.locator("#toast", { hasText: /Reloaded: \d+ policies/ }).waitFor();
    const { limits } = await server.json("/console/api/policies/login");
    assert.match(limits[0].text, /6\/d/);
    await until(async () => /None\./.test(await changes.innerText()), "no difference");
    // A file with a mistake is rejected, and the running policies stay.
    writeFileSync(path, MISTAKES);
    await page.getByRole("button", { name: "Reload" }).click();
    await page.getByRole("dialog").getByRole("button", { name: "Reload" }).click();
    await page.locator("#toast", { hasText: "Rejected: the running policies stay." }).waitFor();
    await page.getByRole("button", { name: /bad-limit line 7/ }).waitFor();
    assertQuiet(page, /status of 422/);
  }));
