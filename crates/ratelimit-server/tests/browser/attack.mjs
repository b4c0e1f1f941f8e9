// Has a real browser attack a server, as a web page does. Prints a JSON object: the status of each call that the page can
// see, or `null` where the browser did not send it.
//
//   node attack.mjs rebound ORIGIN        a page of ORIGIN calls ORIGIN
//   node attack.mjs foreign PAGE TARGET   a page of host PAGE calls TARGET
//
// Every name below .example resolves to 127.0.0.1, as an attacker's name server would answer.

import http from "node:http";
import { chromium } from "playwright-core";

const API = "/api/v1/rate-limit";
const [attack, ...args] = process.argv.slice(2);
const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM_BIN ?? "/usr/bin/chromium",
  args: [
    "--host-resolver-rules=MAP *.example 127.0.0.1",
    // A newer browser asks its user before a page reaches loopback. The server does not rely on that.
    "--disable-features=LocalNetworkAccessChecks",
  ],
});
try {
  const page = await (await browser.newContext({ ignoreHTTPSErrors: true })).newPage();
  const statuses = await (attack === "rebound" ? rebound(page, ...args) : foreign(page, ...args));
  console.log(JSON.stringify(statuses));
} finally {
  await browser.close();
}

// The page came from the attacker's server before its name was bound to the address of the target.
async function rebound(page, origin) {
  const own = `${origin}/page`;
  await page.route(own, (route) => route.fulfill({ contentType: "text/html", body: "a page" }));
  await page.goto(own);
  return page.evaluate(async (api) => {
    const json = { "content-type": "application/json" };
    const calls = {
      check: [`${api}/check?policy=p&key=k`, {}],
      checkByPost: [`${api}/check`, { method: "POST", headers: json, body: '{"policy":"p","key":"k"}' }],
      forwardAuth: [`${api}/forward-auth?policy=p&key=k`, { headers: { "x-forwarded-for": "192.0.2.1" } }],
      remaining: [`${api}/remaining?policy=p&key=k`, {}],
      offenders: [`${api}/offenders`, {}],
      explain: [`${api}/explain?policy=p&key=spent`, {}],
      metrics: ["/actuator/prometheus", {}],
      info: ["/actuator/info", {}],
      reset: [`${api}/reset?policy=p&key=spent`, { method: "DELETE" }],
    };
    const statuses = {};
    for (const [name, [url, init]] of Object.entries(calls)) {
      statuses[name] = (await fetch(url, init)).status;
    }
    return statuses;
  }, API);
}

async function foreign(page, host, target) {
  const server = http.createServer((_, response) => {
    response.setHeader("content-type", "text/html");
    response.end("<iframe name=frame></iframe>");
  });
  await new Promise((listening) => server.listen(0, "127.0.0.1", listening));
  try {
    await page.goto(`http://${host}:${server.address().port}/`);
    const check = `${target}${API}/check?policy=p&key=k`;
    const auth = `${target}${API}/forward-auth?policy=p&key=k`;
    const body = '{"policy":"p","key":"k"}';
    await send(page, check, image);
    await send(page, auth, image);
    await send(page, check, (url) => fetch(url, { mode: "no-cors" }));
    await send(page, check, (url, text) => fetch(url, { mode: "no-cors", method: "POST", body: text }), body);
    await send(page, check, form, "text/plain");
    await send(page, auth, form, "application/x-www-form-urlencoded");
    await send(page, `${target}${API}/refund`, form, "text/plain");
    return {
      json: await preflighted(page, check, { method: "POST", headers: { "content-type": "application/json" }, body }),
      forwarded: await preflighted(page, auth, { headers: { "x-forwarded-for": "192.0.2.1" } }),
      reset: await preflighted(page, `${target}${API}/reset?policy=p&key=spent`, { method: "DELETE" }),
    };
  } finally {
    server.close();
  }
}

// Runs an action in the page and waits until its request is answered. The page cannot see the status: the browser withholds
// answers of other sites.
async function send(page, url, action, argument) {
  const isOurs = (request) => request.url().startsWith(url);
  const answered = Promise.race([
    page.waitForEvent("requestfinished", isOurs),
    page.waitForEvent("requestfailed", isOurs),
  ]);
  await page.evaluate(
    ([source, url, argument]) => {
      // Not awaited: an image or a form that fails throws nothing.
      new Function("url", "argument", `return (${source})(url, argument)`)(url, argument);
    },
    [action.toString(), url, argument],
  );
  await answered;
}

// The status of a call that needs a preflight, or null if the browser did not allow it.
function preflighted(page, url, init) {
  return page.evaluate(
    ([url, init]) => fetch(url, init).then((response) => response.status, () => null),
    [url, init],
  );
}

function image(url) {
  new Image().src = url;
}

function form(url, enctype) {
  const form = document.createElement("form");
  Object.assign(form, { action: url, method: "POST", enctype, target: "frame" });
  const input = document.createElement("input");
  // As text/plain the body is {"policy":"p","key":"k","x":"="}, but for the last member that is JSON of a check.
  Object.assign(input, { name: '{"policy":"p","key":"k","x":"', value: '"}' });
  form.append(input);
  document.body.append(form);
  form.submit();
}
