// Answers of the fake server. Its engine knows token buckets and fixed windows only.

const chance = (n) => Math.abs((Math.sin(n * 127.1) * 43758.5453) % 1);
const wave = (t, of, deep) => 1 + deep * Math.sin(t / of) + 0.03 * chance(Math.floor(t / 4));

/** The numbers of one second. */
export function moment(t, { down = false, gap = [0, 0], idle = false } = {}) {
  const isGap = t >= gap[0] && t < gap[1];
  const spike = Math.max(0, 1 - Math.abs((t % 300) - 205) / 24) ** 1.5;
  const [allowed, over, denied] = [
    1090 * wave(t + 40, 47, 0.12),
    11 * wave(t, 23, 0.5),
    74 * wave(t, 31, 0.25) + 420 * spike,
  ];
  const checks = allowed + over + denied;
  if (idle) return { t, checks: 0, allowed: 0, over: 0, denied: 0, unchecked: 0, wouldDeny: 0 };
  return {
    t,
    checks,
    allowed,
    over,
    denied,
    unchecked: down ? checks : 0,
    wouldDeny: 32 * wave(t, 29, 0.35),
    p50Micros: isGap ? null : 232 * wave(t, 19, 0.1),
    p99Micros: isGap ? null : 1370 * wave(t, 17, 0.2) + 2600 * spike,
  };
}

export function makePolicies(count) {
  const policy = (name, text, checks, denied, more) => ({
    name,
    text,
    checks,
    denied,
    wouldDeny: 0,
    shadow: false,
    enforced: 100,
    throttle: "hard",
    onFailure: "local",
    builtIn: false,
    cost: 1,
    charge_on: [],
    settle: null,
    tiers: {},
    tenants: { total: 0, first: {} },
    exempt: [],
    blocked: [],
    blockedStatus: 403,
    p99Micros: 1380,
    decidedBy: { store: checks, fallback: 0, prefetched: 0 },
    ...more,
  });
  const first = [
    policy("api", "60/min; 1000/d", 612, 31, {
      throttle: "soft 10%",
      tiers: { pro: "600/min burst 100; 50000/d", enterprise: "100/s burst 500" },
      exempt: ["path:/health", "path:/docs/*"],
      tenants: { total: 2, first: { acme: "pro", globex: "enterprise" } },
      decidedBy: { store: 120, fallback: 0, prefetched: 492 },
    }),
    policy("search", "10/s burst 30; fixed_window 5000/d", 348, 0, { shadow: true, enforced: 0, wouldDeny: 29 }),
    policy("login", "5/min; 20/h; penalty_box 10/5min for 15min growing", 96, 41, {
      onFailure: "closed",
      blocked: ["203.0.113.0/24"],
    }),
    policy("comment", "6/min burst 3; fixed_window 100/d", 74, 2, {
      throttle: "soft 20%",
      peek: false,
      peekReason: "the keys of an Envoy rule are made of descriptors",
    }),
    policy("sign-up", "fixed_window 3/h; concurrency 2 lease 30s", 12, 0.4, {
      enforced: 10,
      wouldDeny: 3.1,
      onFailure: "closed",
    }),
  ];
  const more = Array.from({ length: Math.max(0, count - first.length) }, (_, i) =>
    policy(`tenant-${i}`, `${1 + (i % 50)}/s; ${1000 + i}/h`, ((i * 7919) % 97) / 10, ((i * 31) % 11) / 10),
  );
  return [...first.slice(0, count), ...more];
}

export const words = (text) =>
  text
    .replace(/^conc.* (\d+) lease (.*)/, "$1 at once; a lost slot is free after $2")
    .replace(/^pen.* (\d+)\/(\S+) for (\S+).*/, "denied $1 times in $2: refused for $3")
    .replace(/^fixed_window (\d+)\/(.*)/, "$1 in each $2 of the clock")
    .replace(
      /^(?:token_bucket )?(\d+)\/(\S+)(?: burst (\d+))?$/,
      (_, n, per, burst) => `${burst ?? n} at once, then ${n} each ${per}, evenly`,
    );

/** A key that spent `state.spent` of a bucket of 5 each minute at `state.spentAt`. */
export function explain(state, policy, key, permits) {
  const age = (Date.now() - state.spentAt) / 1000;
  const debt = Math.max(0, state.spent - age / 12);
  const remaining = Math.floor(5 - debt);
  const after = permits > 5 ? null : Math.round(Math.max(0, (debt + permits - 5) * 12e6));
  const limit = (text, algorithm, limit, remaining, reset, passes = 0) => ({
    text,
    algorithm,
    allowed: passes === 0,
    limit,
    remaining,
    resetAfterMicros: Math.round(Math.max(0, reset)),
    passesAfterMicros: passes,
  });
  const refusal = `token_bucket 5/min ${after ? `has ${remaining} left of 5` : `never holds ${permits}`}`;
  return {
    key,
    policy,
    permits,
    allowed: after === 0 || Boolean(state.shadow),
    ...(state.shadow && after !== 0 ? { shadow: true } : {}),
    reason: after === 0 ? "every limit has enough left" : refusal,
    passesAfterMicros: after,
    ...(state.down ? { store: "local" } : {}),
    limits: [
      limit("token_bucket 5/min", "TOKEN_BUCKET", 5, remaining, debt * 12e6, after),
      limit("token_bucket 20/h", "TOKEN_BUCKET", 20, state.spent ? 9 : 20, state.spent ? 1980e6 - age * 1e6 : 0),
      limit(
        "penalty_box 10/5min for 15min growing",
        "PENALTY_BOX",
        10,
        state.spent ? 4 : 10,
        state.spent ? 214e6 - age * 1e6 : 0,
      ),
    ],
  };
}

export const forecast = (state, policy, key) => ({
  limit: state.limit ?? 5,
  upToMicros: 60e6,
  points: [1, 2, 3, 4, 5].map((n) => [n, explain(state, policy, key, n).passesAfterMicros]),
});

const MICROS = { ms: 1e3, s: 1e6, min: 6e7, h: 3.6e9, d: 8.64e10 };
function parse({ limits: text }, policy) {
  const m = text
    .split(";")[0]
    .trim()
    .match(/^(token_bucket |fixed_window )?(\d+)\/(\d*)(ms|s|min|h|d)(?: burst (\d+))?$/);
  if (!m) throw Object.assign(new Error(`expected a rate such as 10/s at column 1 of "${text}"`), { policy });
  return { isFixed: m[1] === "fixed_window ", n: +m[2], per: (m[3] || 1) * MICROS[m[4]], room: +(m[5] ?? m[2]) };
}

function times({ kind, hits, trace }, { n, per, room }) {
  const gap = per / n;
  const made = {
    burst: (i) => Math.floor(i / (room * 1.2)) * room * 0.6 * gap + (chance(i + 1) * per) / 8,
    steady: (i) => (i * gap) / 1.5,
    poisson: (i) => (chance(i + 1) * hits * gap) / 1.5,
    boundary: (i) => (1 + Math.floor(i / (2 * room)) * 2) * per + ((chance(i + 1) - 0.5) * per) / 5,
  };
  const at = trace
    ? trace
        .trim()
        .split("\n")
        .map((line) => JSON.parse(line).t * 1e6)
    : Array.from({ length: hits }, (_, i) => made[kind](i));
  return at.sort((a, b) => a - b);
}

export function simulate({ policies, traffic }) {
  const limits = policies.map(parse);
  const at = times(traffic, limits[0]);
  const start = at[0] - limits[0].per / 20;
  const end = at.at(-1) + Math.min(limits[0].per, (at.at(-1) - at[0]) / 3 || limits[0].per);
  const passed = limits.map(() => []);
  const runs = limits.map(({ isFixed, n, per, room }, which) => {
    const size = isFixed ? n : room;
    const run = {
      limits: policies[which].limits,
      allowed: 0,
      delayed: 0,
      over: 0,
      denied: 0,
      impossible: 0,
      longestWaitMicros: 0,
      keysDenied: 0,
      bins: Array.from({ length: 90 }, () => [0, 0, 0, 0]),
      budgets: [{ name: "default", limit: size, points: [] }],
      leaves: [],
      keys: [],
      edges: isFixed ? Array.from({ length: 40 }, (_, i) => (Math.ceil(start / per) + i) * per) : [],
    };
    let [debt, last] = [0, start];
    const debtAt = (t) => {
      if (isFixed) return Math.floor(t / per) > Math.floor(last / per) ? 0 : debt;
      return Math.max(0, debt - ((t - last) * n) / per);
    };
    const look = (t) => run.budgets[0].points.push([t, Math.floor(size - debtAt(t) + 1e-9)]);
    for (let m = 0, i = 0; m <= 300; m++) {
      const t = start + ((end - start) * m) / 300;
      for (; at[i] <= t; i++) {
        const left = size - debtAt(at[i]) + 1e-9;
        const ok = (passed[which][i] = left >= 1);
        if (ok) [debt, last] = [debtAt(at[i]) + 1, at[i]];
        else
          run.longestWaitMicros = Math.round(
            Math.max(run.longestWaitMicros, isFixed ? per - (at[i] % per) : ((1 - left) * per) / n),
          );
        run[ok ? "allowed" : "denied"]++;
        run.bins[Math.min(89, Math.floor(((at[i] - start) / (end - start)) * 90))][ok ? 0 : 3]++;
        look(at[i]);
      }
      look(t);
    }
    return run;
  });
  const only = (x, y) => (y ? at.filter((_, i) => x[i] && !y[i]).length : 0);
  return { scene: { start, end }, runs, onlyA: only(passed[0], passed[1]), onlyB: only(passed[1] ?? [], passed[0]) };
}

export function clientKey({ headers, peer, trusted }) {
  const nets = trusted ?? ["10.0.0.0/8"];
  const address = peer.replace(/:\d+$/, "");
  const isInside = (ip) => nets.some((net) => ip.startsWith(net.replace(/(\.0)*\/.*/, ".")));
  const chain = (headers.match(/^x-forwarded-for:(.*)/im)?.[1] ?? "")
    .split(",")
    .map((x) => x.trim())
    .filter(Boolean)
    .reverse();
  const isTrusted = isInside(address);
  const hit = isTrusted ? chain.findIndex((ip) => !isInside(ip)) : -1;
  const verdict = (i) => (i < hit ? "trusted" : i === hit ? "client" : "not_read");
  return {
    key: `ip:${chain[hit] ?? address}`,
    source: "xff",
    by: hit < 0 ? "the connection" : "X-Forwarded-For",
    advice:
      isTrusted || !chain.length
        ? []
        : [
            `${address} sends X-Forwarded-For and is not trusted. If it is your proxy, add --trusted ${address}.`,
          ],
    steps: [
      { from: "the connection", value: address, verdict: isTrusted ? "trusted" : "peer_untrusted" },
      ...chain.map((value, i) => ({ from: "X-Forwarded-For", value, verdict: verdict(i) })),
    ],
  };
}

export function checkConfig(text) {
  const known = [
    ["fortnight", "error", "bad-limit", "expected a period such as s, 15min or 1h at column 3"],
    ["limit =", "error", "unknown-field", "did you mean limits?"],
    ["1000/s", "warning", "shadowed-limit", "the limit 1000/s never denies: 10/s is always at least as strict"],
  ];
  const line = (part) => text.split("\n").findIndex((row) => row.includes(part)) + 1;
  const findings = known
    .map(([part, severity, code, message]) => ({ line: line(part), severity, code, message, help: "" }))
    .filter((one) => one.line);
  return {
    ok: findings.every(({ severity }) => severity !== "error"),
    findings,
    changes: {
      added: [],
      removed: ["upload"],
      changed: [{ name: "search", from: "10/s burst 30", to: "10/s; 1000/s" }],
      settings: text.includes("192.0.2.0/24") ? ["trusted"] : [],
      needsRestart: [],
    },
  };
}
