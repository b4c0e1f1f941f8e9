// A server with made-up answers, for states that a real one cannot easily show. It serves the real files of the page
// with the headers of the real server.
//
//   node fake.mjs [PORT]      to look at the page; the token is "0123456789abcdef0123"

import { createServer } from "node:http";
import { readFile } from "node:fs/promises";
import { checkConfig, clientKey, explain, forecast, makePolicies, moment, simulate, words } from "./fake_answers.mjs";

const ASSETS = new URL("../../../console/", import.meta.url);
const TYPES = {
  html: "text/html; charset=utf-8",
  css: "text/css; charset=utf-8",
  js: "text/javascript; charset=utf-8",
  svg: "image/svg+xml",
};
const CSP = [
  "default-src 'none'",
  "script-src 'self'",
  "style-src 'self'",
  "img-src 'self'",
  "connect-src 'self'",
  "form-action 'self'",
  "base-uri 'none'",
  "frame-ancestors 'none'",
  "require-trusted-types-for 'script'",
  "trusted-types 'none'",
].join("; ");
const HEADERS = {
  "content-security-policy": CSP,
  "x-content-type-options": "nosniff",
  "referrer-policy": "no-referrer",
  "cross-origin-opener-policy": "same-origin",
  "cross-origin-resource-policy": "same-origin",
  "cache-control": "no-store",
};
export const TOKEN = "0123456789abcdef0123";
const START = 1794841010;

/** An answer that is no success. */
class Problem extends Error {
  constructor(status, detail, more = {}) {
    super(detail);
    this.status = status;
    this.body = { type: "about:blank", title: "Refused", status, detail, ...more };
  }
}

/**
 * Starts a fake server. Tests change `state`, and the next answer follows.
 *
 * - `signedIn`: signed in from the start, without a cookie.
 * - `policies`: how many policies there are.
 * - `tickMs`: the time between two ticks, or 0 if only the test sends them, by `tick()`.
 */
export async function startFake({ port = 0, ...options } = {}) {
  const state = {
    signedIn: false,
    mode: "write",
    down: false,
    tickMs: 1000,
    policies: 5,
    spent: 5,
    spentAt: Date.now(),
    full: false,
    delayMs: 0,
    offenders: undefined,
    session: undefined,
    t: START,
    startedAt: Date.now(),
    ...options,
  };
  const policies = makePolicies(state.policies);
  const viewers = new Set();
  const server = createServer((request, response) => answer(request, response).catch((error) => fail(response, error)));

  const session = (request) => {
    const isCookie = state.session && request.headers.cookie?.includes(`ratelimit_console=${state.session}`);
    const signedIn = state.signedIn || Boolean(isCookie);
    const can = signedIn ? ["look", ...(state.mode === "write" ? ["reset", "reload"] : [])] : [];
    const expiresAt = signedIn ? Math.floor(Date.now() / 1000) + 1800 : null;
    return { signedIn, expiresAt, mode: state.mode, can, keys: "shown" };
  };

  const calls = {
    "GET /console/api/session": (request) => session(request),
    "POST /console/api/session": async (request, _, response) => {
      if ((await json(request)).token !== TOKEN) throw new Problem(401, "this is not the admin token");
      state.session = Math.random().toString(36).slice(2);
      response.setHeader(
        "set-cookie",
        `ratelimit_console=${state.session}; HttpOnly; SameSite=Strict; Path=/; Max-Age=1800`,
      );
      return session({ headers: { cookie: `ratelimit_console=${state.session}` } });
    },
    "DELETE /console/api/session": () => {
      Object.assign(state, { signedIn: false, session: undefined });
      return session({ headers: {} });
    },
    "GET /console/api/policies": (_, params) => {
      const [q, sort] = [params.get("q") ?? "", params.get("sort") ?? "name"];
      const found = policies.filter(({ name, text }) => `${name} ${text}`.includes(q));
      found.sort((a, b) => (sort === "name" ? a.name.localeCompare(b.name) : b[sort] - a[sort]));
      const limit = Number(params.get("limit") ?? 100);
      return { total: found.length, next: found[limit]?.name ?? null, policies: found.slice(0, limit) };
    },
    "GET /api/v1/rate-limit/offenders": () =>
      state.offenders ?? {
        policies: {
          login: [
            { key: "sha256~ce597ac46d430f16", denied: 1831, error: 0 },
            { key: "ip:203.0.113.77", by: "ip", denied: 640, error: 12 },
          ],
          api: [{ key: "<img src=x onerror=alert(1)>", denied: 977, error: 0 }],
        },
        shadow: { search: [{ key: "ip:2001:db8:4:7::/64", denied: 388, error: 0 }] },
      },
    "GET /api/v1/rate-limit/explain": (_, params) => {
      known(params.get("policy"));
      state.peeks = (state.peeks ?? 0) + 1;
      for (const by of state.by ?? [])
        if (!params.get(`keys.${by}`))
          throw new Problem(400, `a limit of policy login counts by ${by}: send keys.${by}=...`);
      return explain(state, params.get("policy"), params.get("key"), Number(params.get("permits") ?? 1));
    },
    "GET /console/api/forecast": (_, params) => {
      known(params.get("policy"));
      return forecast(state, params.get("policy"), params.get("key"));
    },
    "DELETE /api/v1/rate-limit/reset": () => {
      if (state.mode !== "write") throw new Problem(403, "the console is read-only");
      if (state.down) throw new Problem(503, "Redis did not answer: only this server has reset the key");
      state.spent = 0;
      return { reset: true };
    },
    "POST /console/api/simulate": async (request) => {
      try {
        return simulate(await json(request));
      } catch (error) {
        throw new Problem(400, error.message, { policy: error.policy });
      }
    },
    "POST /console/api/client-key": async (request) => clientKey(await json(request)),
    "GET /console/api/config": () => ({
      path: "/etc/ratelimit-server.toml",
      format: "toml",
      text: state.text ?? TEXT,
      etag: `"${(state.text ?? TEXT).length}"`,
      writable: false,
      ...state.config,
    }),
    "POST /console/api/check-config": async (request) => {
      if (state.busy) throw new Problem(503, "another text is being checked");
      return checkConfig((await json(request)).text);
    },
    "POST /console/api/reload": () => ({ result: "ok", policies: policies.length }),
  };

  function known(name) {
    const found = policies.find((policy) => policy.name === name);
    if (!found) throw new Problem(400, "unknown policy");
    return found;
  }

  async function answer(request, response) {
    const url = new URL(request.url, "http://fake");
    for (const [name, value] of Object.entries(HEADERS)) response.setHeader(name, value);
    if (request.method === "GET" && /^\/console\/([a-z_]+\.\w+)?$/.test(url.pathname)) return asset(url, response);
    if (state.delayMs && url.pathname.includes("/api/"))
      await new Promise((resolve) => setTimeout(resolve, state.delayMs));
    const isSession = url.pathname === "/console/api/session";
    if (!isSession && !session(request).signedIn) throw new Problem(401, "sign in first");
    if (url.pathname === "/console/api/live") return live(response);
    const one = url.pathname.match(/^\/console\/api\/policies\/(.+)$/);
    const call = one ? () => detail(decodeURIComponent(one[1])) : calls[`${request.method} ${url.pathname}`];
    if (!call) throw new Problem(404, "no such call");
    const body = await call(request, url.searchParams, response);
    response.writeHead(200, { "content-type": "application/json" }).end(JSON.stringify(body));
  }

  function detail(name) {
    const found = policies.find((policy) => policy.name === name);
    if (!found) throw new Problem(404, "unknown policy");
    const limits = found.text.split("; ").map((text, i) => ({ text, words: words(text), by: state.by?.[i] ?? null }));
    return { ...found, limits };
  }

  async function asset(url, response) {
    const name = url.pathname.slice("/console/".length) || "index.html";
    const body = await readFile(new URL(name, ASSETS)).catch(() => null);
    if (!body) throw new Problem(404, "no such file");
    response.writeHead(200, { "content-type": TYPES[name.split(".").pop()] }).end(body);
  }

  function live(response) {
    if (state.full) throw new Problem(503, "32 pages watch already");
    response.writeHead(200, { "content-type": "text/event-stream" });
    const history = {};
    for (let t = state.t - 299; t <= state.t; t++) {
      for (const [name, value] of Object.entries(moment(t, state))) (history[name] ??= []).push(value);
    }
    const info = {
      server: "ratelimit-server 0.1.0",
      application: "shop",
      listen: "127.0.0.1:8080",
      startedAt: START - 4000,
    };
    send(response, "hello", { ...info, trusted: ["10.0.0.0/8"], timeBudgetMicros: 25000, history });
    send(response, "tick", tickOf());
    viewers.add(response);
    response.on("close", () => viewers.delete(response));
  }

  const send = (response, event, data) => response.write(`event: ${event}\ndata: ${JSON.stringify(data)}\n\n`);
  const tickOf = () => ({
    ...moment(state.t, state),
    roundTripMicros: 214,
    denyCached: 61,
    reload: state.reload ?? { result: "ok", at: START - 900 },
    store: {
      kind: "redis",
      up: !state.down,
      downMicros: state.down ? 94e6 : 0,
      server: "cache:6379",
      version: "7.0.15",
      reconnects: state.down ? 377 : 1,
      ambiguous: state.down ? 3 : 0,
      evicted: 0,
    },
    top: policies
      .slice(0, 6)
      .map((p) => ({ policy: p.name, limits: p.text, checks: p.checks, denied: p.denied, decidedBy: decided(p) })),
    watched: policies
      .filter((p) => p.wouldDeny)
      .slice(0, 20)
      .map((p) => ({ policy: p.name, enforced: p.shadow ? 0 : p.enforced, checks: p.checks, wouldDeny: p.wouldDeny })),
  });
  const decided = (p) => (state.down ? { store: 0, fallback: p.checks, prefetched: 0 } : p.decidedBy);

  /** Sends the numbers of the next second to all viewers. */
  function tick(count = 1) {
    for (let i = 0; i < count; i++) {
      state.t++;
      for (const viewer of viewers) send(viewer, "tick", tickOf());
    }
  }

  await new Promise((listening) => server.listen(port, "127.0.0.1", listening));
  const timer = state.tickMs ? setInterval(tick, state.tickMs) : null;
  return {
    state,
    viewers,
    tick,
    origin: `http://127.0.0.1:${server.address().port}`,
    get url() {
      return `${this.origin}/console/`;
    },
    async close() {
      clearInterval(timer);
      server.closeAllConnections();
      await new Promise((closed) => server.close(closed));
    },
  };
}

/** Runs a test against a server of its own, in which one is signed in. */
export async function withFake(options, run) {
  const fake = await startFake({ signedIn: true, ...options });
  try {
    await run(fake);
  } finally {
    await fake.close();
  }
}

async function json(request) {
  if (request.headers["content-type"] !== "application/json") throw new Problem(415, "expected application/json");
  let text = "";
  for await (const part of request) text += part;
  return JSON.parse(text);
}

function fail(response, error) {
  const { status = 500, body = { detail: error.stack } } = error;
  if (!response.headersSent) response.writeHead(status, { "content-type": "application/problem+json" });
  response.end(JSON.stringify(body));
}

const TEXT = `redis = "redis://cache"
trusted = ["10.0.0.0/8"]

[policy]
comment = "6/min burst 3; fixed_window 100/d"
search = "10/s; 1000/s"

[policy.login]
limits = "5/fortnight; 20/h"
on_failure = "closed"

[policy.api]
limit = "60/min; 1000/d"
throttle = "soft 10%"
`;

if (process.argv[1] === new URL(import.meta.url).pathname) {
  console.log((await startFake({ port: Number(process.argv[2] ?? 0) })).url);
}
