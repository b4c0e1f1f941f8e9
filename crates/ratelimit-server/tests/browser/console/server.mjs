// Real servers: ratelimit-server, whose path is in RATELIMIT_SERVER, and Redis.

import assert from "node:assert/strict";
import { spawn, spawnSync } from "node:child_process";
import { createSocket } from "node:dgram";
import { once } from "node:events";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";

import { PATIENCE_MS } from "./harness.mjs";

export const API = "/api/v1/rate-limit";
export const TOKEN = "c0ffee5eed0123456789abcdef012345";

/** Waits until a condition holds, and gives its value. */
export async function until(condition, what) {
  const deadline = Date.now() + PATIENCE_MS;
  for (;;) {
    const value = await condition();
    if (value) return value;
    assert.ok(Date.now() < deadline, `never: ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}

const FIRST_PORT = 11_000;
const PORTS = 21_000;
let nextPort = process.pid * 97;
const portLocks = [];

/**
 * A port that no other test is given while this process runs, and that no outgoing connection takes, by the rules of
 * `free_port` in the Rust crate of tests: the UDP port of the same number is the lock.
 */
async function freePort() {
  for (;;) {
    const port = FIRST_PORT + (nextPort++ % PORTS);
    const lock = createSocket("udp4").unref();
    const probe = createServer();
    try {
      await once(lock.bind(port, "127.0.0.1"), "listening");
      await once(probe.listen(port, "127.0.0.1"), "listening");
    } catch {
      lock.close();
      continue;
    }
    await once(probe.close(), "close");
    portLocks.push(lock);
    return port;
  }
}

/** Runs a command of the server, such as `simulate`. */
export function command(...args) {
  return spawnSync(binary(), args, { encoding: "utf8", env: environment(), maxBuffer: 64 << 20 });
}

const binary = () => process.env.RATELIMIT_SERVER ?? assert.fail("RATELIMIT_SERVER must be the path of the server");
/** The environment without settings of the server. */
const environment = () =>
  Object.fromEntries(Object.entries(process.env).filter(([name]) => !name.startsWith("RATELIMIT_")));

/** A server process on a port of its own. */
export class Server {
  constructor(args, { token = TOKEN, mode = "write" } = {}) {
    this.dir = mkdtempSync(join(tmpdir(), "console-"));
    this.tokenFile = join(this.dir, "token");
    this.setToken(token);
    this.args = ["--drain-delay", "0", "--admin-token-file", this.tokenFile, "--console", mode, ...args];
  }

  static async start(args = [], options = {}) {
    const server = new Server(args, options);
    server.port = await freePort();
    await server.spawn();
    return server;
  }

  /** Starts the process, also again after it has ended, on the same port. */
  async spawn() {
    const child = spawn(binary(), ["--listen", `127.0.0.1:${this.port}`, ...this.args], {
      env: environment(),
      stdio: ["ignore", "pipe", "pipe"],
    });
    this.child = child;
    this.log = "";
    let banner = "";
    child.stdout.on("data", (text) => {
      banner += text;
    });
    child.stderr.on("data", (text) => {
      this.log += text;
    });
    this.ended = new Promise((resolve) => child.on("exit", (code, signal) => resolve(code ?? signal)));
    child.on("exit", () => {
      this.hasEnded = true;
    });
    this.hasEnded = false;
    await until(() => banner.includes("\n  try ") || this.hasEnded, "the start of the server");
    assert.ok(!this.hasEnded, `the server ended: ${banner}${this.log}`);
    this.banner = banner;
  }

  get origin() {
    return `http://127.0.0.1:${this.port}`;
  }

  get url() {
    return `${this.origin}/console/`;
  }

  setToken(token) {
    this.token = token;
    writeFileSync(this.tokenFile, token);
  }

  async stop(signal = "SIGTERM") {
    if (!this.hasEnded) this.child.kill(signal);
    return this.ended;
  }

  async close() {
    await this.stop("SIGKILL");
    rmSync(this.dir, { recursive: true, force: true });
  }

  /** A call with the admin token. */
  fetch(path, { method = "GET", body } = {}) {
    return fetch(`${this.origin}${path}`, {
      method,
      headers: { authorization: `Bearer ${this.token}`, ...(body ? { "content-type": "application/json" } : {}) },
      body: body && JSON.stringify(body),
    });
  }

  async json(path, options) {
    const response = await this.fetch(path, options);
    const text = await response.text();
    assert.ok(response.ok, `${path}: ${response.status} ${text}`);
    return JSON.parse(text);
  }

  /** Checks a key so many times, one after the other. */
  async check(policy, key, times = 1, more = "") {
    const statuses = [];
    for (let i = 0; i < times; i++) {
      const response = await fetch(`${this.origin}${API}/check?${new URLSearchParams({ policy, key })}${more}`);
      await response.arrayBuffer();
      statuses.push(response.status);
    }
    return statuses;
  }

  explain(policy, key, permits = 1) {
    return this.json(`${API}/explain?${new URLSearchParams({ policy, key, permits })}`);
  }
}

/** A Redis on a port of its own, which can be killed and started again. */
export class Redis {
  static async start() {
    const redis = new Redis();
    redis.dir = mkdtempSync(join(tmpdir(), "console-redis-"));
    redis.port = await freePort();
    await redis.spawn();
    return redis;
  }

  get url() {
    return `redis://127.0.0.1:${this.port}`;
  }

  async spawn() {
    const args = [
      "--port",
      String(this.port),
      "--bind",
      "127.0.0.1",
      "--save",
      "",
      "--appendonly",
      "no",
      "--dir",
      this.dir,
    ];
    this.child = spawn(process.env.REDIS_SERVER_BIN ?? "redis-server", args, { stdio: ["ignore", "pipe", "inherit"] });
    let log = "";
    this.child.stdout.on("data", (text) => {
      log += text;
    });
    this.ended = new Promise((resolve) => this.child.on("exit", resolve));
    await until(() => log.includes("Ready to accept connections"), "the start of Redis");
  }

  async kill() {
    this.child.kill("SIGKILL");
    await this.ended;
  }

  async close() {
    await this.kill();
    rmSync(this.dir, { recursive: true, force: true });
  }
}

/** Runs a test with a server of its own. */
export async function withServer(args, run, options) {
  const server = await Server.start(args, options);
  try {
    await run(server);
  } finally {
    await server.close();
  }
}
