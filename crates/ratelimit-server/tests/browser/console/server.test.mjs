// The page with a real server: sessions, other origins, restarts, outages and limits.

import assert from "node:assert/strict";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { assertQuiet, go, newContext, newPage, useBrowser, withPage } from "./harness.mjs";
import { API, Redis, TOKEN, until, withServer } from "./server.mjs";

useBrowser();
const LOGIN = ["--policy", "login=5/min; 20/h", "--policy", "upload=fixed_window 1000/d"];
const PEEK = "#/key?policy=login&key=mallory";
const NETWORK = /ERR_|Failed to load resource/;

async function signIn(page, token = TOKEN) {
  await page.getByLabel("Admin token").fill(token);
  await page.keyboard.press("Enter");
}

test("the token of the start screen signs in", () =>
  withServer(LOGIN, (server) =>
    withPage(`${server.url}#token=${TOKEN}`, async (page) => {
      assert.match(server.banner, /console +http:\/\/127\.0\.0\.1:\d+\/console\//);
      await page.getByRole("heading", { name: "Top denied keys" }).waitFor();
      assert.equal(page.url(), `${server.url}#/overview`);
      await page.locator("#store", { hasText: "memory" }).waitFor();
      assertQuiet(page);
    }),
  ));

test("a reset needs the right token, and a yes", () =>
  withServer(LOGIN, (server) =>
    withPage(`${server.url}${PEEK}`, async (page) => {
      await server.check("login", "mallory", 7);
      await signIn(page, "wrong-wrong-wrong-wrong");
      await page.getByRole("alert").filter({ hasText: "This is not the admin token." }).waitFor();
      await signIn(page);
      await page.getByText(/Passes in/).waitFor();
      const remaining = async () => (await server.explain("login", "mallory")).limits[1].remaining;
      const before = await remaining();
      assert.ok(before < 20);
      const reset = page.getByRole("button", { name: "Reset" });
      await reset.click();
      const dialog = page.getByRole("dialog", { name: "Reset this key?" });
      await dialog.getByRole("button", { name: "Cancel" }).click();
      assert.equal(await remaining(), before, "cancelling resets nothing");
      await reset.click();
      await dialog.getByRole("button", { name: "Reset" }).click();
      await page.getByText("Passes now").waitFor();
      assert.equal(await remaining(), 20);
      assertQuiet(page, NETWORK);
    }),
  ));

test("the token is in no storage, and scripts cannot read the cookie", () =>
  withServer(LOGIN, (server) =>
    withPage(server.url, async (page, context) => {
      await signIn(page);
      await page.getByRole("button", { name: "Sign out" }).waitFor();
      const [cookie] = await context.cookies();
      assert.deepEqual([cookie.name, cookie.httpOnly, cookie.sameSite], ["ratelimit_console", true, "Strict"]);
      const kept = await page.evaluate(async () =>
        JSON.stringify([
          document.cookie,
          { ...localStorage },
          { ...sessionStorage },
          (await indexedDB.databases()).length,
          await caches.keys(),
          location.href,
          history.state,
        ]),
      );
      assert.ok(!kept.includes(TOKEN), kept);
      assert.equal(JSON.parse(kept)[0], "");
      assert.ok(!(await page.content()).includes(TOKEN), "the token is in the document");
      assert.ok(!cookie.value.includes(TOKEN));
      await page.getByRole("button", { name: "Sign out" }).click();
      await page.getByLabel("Admin token").waitFor();
      assert.deepEqual(await context.cookies(), []);
    }),
  ));

test("another origin can neither read nor change, although one is signed in", () =>
  withServer(LOGIN, async (server) => {
    await server.check("upload", "victim", 10);
    const foreign = createServer((_, response) => response.setHeader("content-type", "text/html").end("<p>foreign"));
    await new Promise((listening) => foreign.listen(0, "127.0.0.1", listening));
    const context = await newContext();
    try {
      const own = await newPage(context);
      await own.goto(`${server.url}#token=${TOKEN}`);
      await own.getByRole("button", { name: "Sign out" }).waitFor();
      const reloads = async () =>
        (await (await server.fetch("/actuator/prometheus")).text()).match(/reloads_total\{.*"ok".*\} (\d+)/)?.[1];
      const before = await reloads();
      const page = await newPage(context);
      const seen = [];
      page.on("response", (response) => {
        if (response.url().startsWith(server.origin)) seen.push([response.request().method(), response.status()]);
      });
      const calls = [
        ["GET", "/console/api/policies"],
        ["GET", "/console/api/live"],
        ["GET", "/console/api/session"],
        ["POST", "/console/api/reload"],
        ["POST", "/console/api/session"],
        ["DELETE", "/console/api/session"],
        ["GET", `${API}/offenders`],
        ["DELETE", `${API}/reset?policy=upload&key=victim`],
      ];
      for (const host of ["evil.example", "localhost"]) {
        await page.goto(`http://${host}:${foreign.address().port}/`);
        const read = await page.evaluate(
          ([origin, calls]) =>
            Promise.all(
              calls.flatMap(([method, path]) =>
                ["cors", "no-cors"].map((mode) =>
                  fetch(`${origin}${path}`, { method, mode, credentials: "include" }).then(
                    (answer) => answer.text(),
                    () => "",
                  ),
                ),
              ),
            ),
          [server.origin, calls],
        );
        assert.deepEqual(read.filter(Boolean), [], host);
      }
      assert.ok(seen.length > 0);
      assert.deepEqual(
        seen.filter(([, status]) => status < 400),
        [],
      );
      assert.equal(await reloads(), before);
      assert.equal((await server.explain("upload", "victim")).limits[0].remaining, 990);
      // The session of the console goes on.
      await own.reload();
      await own.getByRole("button", { name: "Sign out" }).waitFor();
    } finally {
      await context.close();
      foreign.close();
    }
  }));

test("a name that is rebound to this machine gets 421", () =>
  withServer(LOGIN, async (server) => {
    const context = await newContext();
    const page = await newPage(context);
    const response = await page.goto(`http://evil.example:${server.port}/console/`);
    assert.equal(response.status(), 421);
    const statuses = await page.evaluate(() =>
      Promise.all(
        ["/console/api/session", "/console/api/policies", "/console/console.js"].map((path) =>
          fetch(path).then((answer) => answer.status),
        ),
      ),
    );
    assert.deepEqual(statuses, [421, 421, 421]);
    await context.close();
  }));

test("a server that restarts is found again, and what is missing is a gap", () =>
  withServer(LOGIN, (server) =>
    withPage(`${server.url}#token=${TOKEN}`, async (page) => {
      await page.locator("#store", { hasText: "memory" }).waitFor();
      await server.stop();
      await page.locator("#store", { hasText: "server away" }).waitFor();
      await page.getByRole("alert").filter({ hasText: "The server does not answer." }).waitFor();
      await server.spawn();
      await page.locator("#store", { hasText: "memory" }).waitFor();
      assert.equal(await page.locator("#notice").innerText(), "");
      // The token made the key of the session, so the session goes on.
      assert.ok(await page.getByRole("button", { name: "Sign out" }).isVisible());
      assertQuiet(page, NETWORK);
    }),
  ));

test("a slow server leaves the page usable, and a late answer does not take the screen", () =>
  withServer(LOGIN, (server) =>
    withPage(`${server.url}#token=${TOKEN}`, async (page) => {
      await page.locator("#store", { hasText: "memory" }).waitFor();
      let late = 0;
      await page.route(`**${API}/**`, async (route) => {
        const response = await route.fetch();
        await new Promise((resolve) => setTimeout(resolve, 3000));
        late += 1;
        await route.fulfill({ response }).catch(() => {});
      });
      await go(page, "key");
      await page.evaluate((hash) => {
        location.hash = hash;
      }, PEEK);
      await page.getByText("Loading").waitFor();
      await page.keyboard.press("4");
      await page.getByRole("heading", { name: "Try a policy" }).waitFor();
      assert.equal(late, 0, "the page waits for the server");
      await until(() => late > 0, "the late answer");
      assert.ok(
        await page.getByRole("heading", { name: "Try a policy" }).isVisible(),
        "a late answer takes the screen",
      );
      assert.equal(await page.getByText("Passes").count(), 0);
      assertQuiet(page);
    }),
  ));

test("a killed Redis is an alert, the local fallback decides, and healing ends it", async () => {
  const redis = await Redis.start();
  try {
    await withServer([...LOGIN, "--redis", redis.url], (server) =>
      withPage(`${server.url}#token=${TOKEN}`, async (page) => {
        await page.locator("#store", { hasText: /Redis \d/ }).waitFor();
        const busy = page.getByRole("table", { name: "Busiest policies" });
        await until(async () => {
          await server.check("upload", "alice");
          return (await busy.count()) && /upload[^]*Redis/.test(await busy.innerText());
        }, "Redis decides");
        await redis.kill();
        await until(async () => {
          await server.check("upload", "alice");
          return page.locator("#store", { hasText: "Redis down" }).isVisible();
        }, "the outage in the header");
        await page.getByRole("alert").filter({ hasText: "Redis has not answered for" }).waitFor();
        const unchecked = page.locator(".tile", { hasText: "unchecked" });
        await until(async () => {
          await server.check("upload", "alice");
          return (
            /[1-9]/.test(await unchecked.locator("b").evaluate((el) => el.firstChild.textContent)) &&
            /local fallback/.test(await busy.innerText())
          );
        }, "unchecked rises");
        assert.equal(
          await page.getByText("decides now").locator("xpath=following-sibling::dd[1]").innerText(),
          "local fallback",
        );
        // A peek still answers, from the local budgets.
        await go(page, "key?policy=upload&key=alice");
        await page.getByText("these are the local budgets of this server").waitFor();
        await go(page, "overview");
        await redis.spawn();
        await until(async () => {
          await server.check("upload", "alice");
          return page.locator("#store", { hasText: /Redis \d/ }).isVisible();
        }, "the healing");
        await page.getByRole("alert").waitFor({ state: "detached" });
        assertQuiet(page);
      }),
    );
  } finally {
    await redis.close();
  }
});

test("a new admin token ends the session, and the page asks for it", () =>
  withServer(LOGIN, (server) =>
    withPage(`${server.url}#token=${TOKEN}`, async (page) => {
      await page.locator("#store", { hasText: "memory" }).waitFor();
      await go(page, "policies");
      server.setToken("another-token-0123456789");
      await page.getByRole("alert").filter({ hasText: "The session has ended." }).waitFor();
      await signIn(page, TOKEN);
      await page.getByRole("alert").filter({ hasText: "This is not the admin token." }).waitFor();
      await signIn(page, server.token);
      await page.getByRole("heading", { name: "Policies", exact: true }).waitFor();
      assertQuiet(page, NETWORK);
    }),
  ));

test("with --console read the page hides changes, and the server refuses them too", () =>
  withServer(
    LOGIN,
    (server) =>
      withPage(`${server.url}#token=${TOKEN}`, async (page) => {
        await server.check("login", "mallory", 5);
        await page.locator("#store", { hasText: "memory" }).waitFor();
        await go(page, "key?policy=login&key=mallory");
        await page.getByText(/Passes in/).waitFor();
        assert.ok(await page.getByRole("button", { name: "Reset" }).isDisabled());
        await page.getByText("Read-only: the server runs with --console read; restart with --console write.").waitFor();
        const statuses = await page.evaluate(
          (api) =>
            Promise.all(
              [
                fetch(`${api}/reset?policy=login&key=mallory`, {
                  method: "DELETE",
                  headers: { "content-type": "application/json" },
                }),
                fetch("/console/api/reload", {
                  method: "POST",
                  headers: { "content-type": "application/json" },
                  body: "{}",
                }),
              ].map(async (answer) => (await answer).status),
            ),
          API,
        );
        assert.deepEqual(statuses, [403, 403]);
        assert.equal((await server.explain("login", "mallory")).allowed, false, "the key was reset");
      }),
    { mode: "read" },
  ));

// It takes one second, in which idle connections may still send a request. The timeout of the shutdown is 20 seconds.
test("SIGTERM ends a server with five open streams, and does not wait for them", () =>
  withServer(LOGIN, async (server) => {
    const context = await newContext();
    try {
      const pages = await Promise.all(
        Array.from({ length: 5 }, async () => {
          const page = await newPage(context);
          await page.goto(`${server.url}#token=${TOKEN}`);
          await page.locator("#store", { hasText: "memory" }).waitFor();
          return page;
        }),
      );
      const start = Date.now();
      assert.equal(await server.stop(), 0);
      assert.ok(Date.now() - start < 10_000, `${Date.now() - start} ms`);
      await pages[4].locator("#store", { hasText: "server away" }).waitFor();
    } finally {
      await context.close();
    }
  }));

test("the 33rd viewer gets a sentence, and the others go on", () =>
  withServer(LOGIN, async (server) => {
    const leave = new AbortController();
    const headers = { authorization: `Bearer ${TOKEN}` };
    const viewers = await Promise.all(
      Array.from({ length: 32 }, () => fetch(`${server.origin}/console/api/live`, { headers, signal: leave.signal })),
    );
    assert.deepEqual([...new Set(viewers.map(({ status }) => status))], [200]);
    const reader = viewers[0].body.getReader();
    await withPage(`${server.url}#token=${TOKEN}`, async (page) => {
      await page.locator("#notice").getByRole("alert").filter({ hasText: /32/ }).waitFor();
      await go(page, "policies");
      await page.getByRole("link", { name: "login" }).waitFor();
      for (let ticks = 0; ticks < 2;)
        ticks += new TextDecoder().decode((await reader.read()).value).includes("event: tick") ? 1 : 0;
      leave.abort();
      await page.locator("#store", { hasText: "memory" }).waitFor();
      assertQuiet(page, NETWORK);
    });
  }));

test("five wrong tokens in a minute close the form for the sixth", () =>
  withServer(LOGIN, (server) =>
    withPage(server.url, async (page) => {
      for (let i = 0; i < 5; i++) {
        const answered = page.waitForResponse(/session/);
        await signIn(page, `wrong-wrong-wrong-${i}`);
        assert.equal((await answered).status(), 401);
        await page.getByRole("alert").filter({ hasText: "This is not the admin token." }).waitFor();
      }
      await signIn(page);
      await page
        .getByRole("alert")
        .filter({ hasText: /\(try again in \d+ s\)/ })
        .waitFor();
      assert.ok(await page.getByLabel("Admin token").isVisible());
    }),
  ));

/** Runs a test with a directory that holds one file. */
async function withFolder(name, text, run) {
  const folder = mkdtempSync(join(tmpdir(), "console-folder-"));
  writeFileSync(join(folder, name), text);
  try {
    await run(folder);
  } finally {
    rmSync(folder, { recursive: true });
  }
}

const ENVOY = `domain: edge
descriptors:
  - key: remote_address
    rate_limit: {unit: minute, requests_per_unit: 20}
  - key: path
    value: /login
    shadow_mode: true
    rate_limit: {unit: second, requests_per_unit: 2}
`;

test("rules of Envoy domains are policies like others", () =>
  withFolder("edge.yaml", ENVOY, (folder) =>
    withServer(["--envoy-listen", "127.0.0.1:0", "--envoy-config", folder], (server) =>
      withPage(`${server.url}#token=${TOKEN}`, async (page) => {
        await go(page, "policies");
        const rows = page.locator("tbody tr", { hasText: "edge" });
        await until(async () => (await rows.count()) === 2, "the rules");
        const badges = await rows.evaluateAll((all) =>
          all.map((row) => [
            row.querySelector("small").textContent,
            [...row.querySelectorAll(".badge")].map((one) => one.textContent).join(),
          ]),
        );
        assert.deepEqual(badges.sort(), [
          ["fixed_window 2/s", "shadow,Envoy edge"],
          ["fixed_window 20/min", "Envoy edge"],
        ]);
        await rows.filter({ hasText: "20/min" }).getByRole("link").click();
        await page.getByText("20 in each window of 1 min").waitFor();
        assert.equal(
          await page.getByRole("link", { name: "Peek at a key" }).count(),
          0,
          "explain knows no rules of Envoy",
        );
        assertQuiet(page);
      }),
    ),
  ));

test("ten thousand policies of a real server are a hundred rows", () => {
  const names = Array.from({ length: 10_000 }, (_, i) => `tenant-${i} = "${1 + (i % 50)}/s"`);
  return withFolder("server.toml", `[policy]\n${names.join("\n")}\n`, (folder) =>
    withServer(["--config", join(folder, "server.toml")], (server) =>
      withPage(`${server.url}#token=${TOKEN}`, async (page) => {
        await go(page, "policies");
        await page.getByText(/^100 of 10,0\d\d; filter/).waitFor();
        assert.equal(await page.locator("tbody tr").count(), 100);
        await page.getByLabel("Filter policies").fill("tenant-777");
        await page.getByText("11 of 10,0").waitFor();
        assert.equal(await page.locator("tbody tr").count(), 11);
        assertQuiet(page);
      }),
    ),
  );
});

test("an access log has moments on its axis, and a table of the keys that are denied", () =>
  withServer(LOGIN, (server) =>
    withPage(`${server.url}#token=${TOKEN}`, async (page) => {
      await page.locator("#store", { hasText: "memory" }).waitFor();
      await go(page, `try?${new URLSearchParams({ a: "fixed_window 2/min; fixed_window 100/d", b: "", kind: "trace" })}`);
      const line = (ip, second) => `${ip} - - [17/Nov/2026:12:53:${second} +0000] "GET / HTTP/1.1" 200 100`;
      const lines = [10, 11, 12, 13].map((second) => line("203.0.113.7", second));
      await page
        .getByLabel("Lines of a trace or of an access log")
        .fill([line("203.0.113.8", 10), ...lines].join("\n"));
      await page.getByRole("button", { name: "Run" }).click();
      await page.getByText("Denied keys (1)").click();
      const cells = await page.getByRole("table", { name: "Denied keys" }).locator("tbody td").allInnerTexts();
      assert.deepEqual(cells, ["ip:203.0.113.7", "2", "2"]);
      await page.getByText(/^Solid: .*2\/min.* Dashed: the others\.$/).waitFor();
      const times = await page.locator(".run svg text").allTextContents();
      assert.ok(times.filter((text) => /^12:53:\d\d$/.test(text)).length >= 2, `${times}`);
      assertQuiet(page);
    }),
  ));
