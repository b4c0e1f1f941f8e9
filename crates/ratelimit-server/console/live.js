// The live numbers: one stream, and the history of the last five minutes.

import * as api from './api.js';

export const WINDOW_S = 300;
const SILENCE_MS = 10_000;
const HIDDEN_MS = 30_000;
const MAX_BACKOFF_MS = 15_000;

/** The newest numbers. `link` is connecting, open, away, full or hidden. */
export const live = {
  link: 'connecting',
  why: '',
  /** @type {any} */ info: {},
  /** @type {any} */ last: null,
  /** @type {Record<string, (number | null)[]>} */ history: { t: [] },
};

/** Adds the samples of `hello`, which win over ours from their first second on. */
function greet(info) {
  const [first = Infinity] = info.history.t;
  const kept = live.history.t.filter((t) => t < first).length;
  for (const [name, values] of Object.entries(info.history)) {
    const old = live.history[name]?.slice(0, kept) ?? Array(kept).fill(null);
    live.history[name] = old.concat(values);
  }
  live.info = info;
  trim();
}

/** Adds the sample of a tick, or replaces the sample of the same second. */
function append(tick) {
  const at = live.history.t.at(-1) === tick.t ? live.history.t.length - 1 : live.history.t.length;
  for (const [name, values] of Object.entries(live.history)) values[at] = tick[name] ?? null;
  live.last = tick;
  trim();
}

function trim() {
  const { t } = live.history;
  const old = t.findIndex((at) => at > t.at(-1) - WINDOW_S);
  if (old > 0) for (const values of Object.values(live.history)) values.splice(0, old);
}

/** The events of a response of type text/event-stream. */
async function* events(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  for (let text = ''; ;) {
    const { value, done } = await reader.read();
    if (done) return;
    const blocks = (text + value).split(/\r?\n\r?\n/);
    text = blocks.pop();
    for (const block of blocks) {
      const event = { name: 'message', data: '' };
      for (const line of block.split(/\r?\n/)) {
        if (line.startsWith('event:')) event.name = line.slice(6).trim();
        if (line.startsWith('data:')) event.data += line.slice(5);
      }
      yield event;
    }
  }
}

let stream = null;
let timer;
let backoff = 500;

/**
 * Opens the stream, and opens it again when it ends, later each time.
 * @param {{ hello(): void, tick(): void, link(): void, signedOut(): void }} on
 */
export function open(on) {
  clearTimeout(timer);
  stream?.abort();
  const mine = stream = new AbortController();
  let silence;
  const heard = () => { clearTimeout(silence); silence = setTimeout(() => mine.abort(), SILENCE_MS); };
  const link = (state, why = '') => { Object.assign(live, { link: state, why }); on.link(); };
  const run = async () => {
    heard();
    const response = await api.live(mine.signal);
    if (!response.ok) throw await api.errorOf(response);
    for await (const { name, data } of events(response.body)) {
      if (mine.signal.aborted) return;
      heard();
      if (name === 'hello') {
        backoff = 500;
        greet(JSON.parse(data));
        link('open');
        on.hello();
      } else if (name === 'tick') {
        append(JSON.parse(data));
        on.tick();
      } else if (name === 'bye') {
        return;
      }
    }
  };
  run().catch((error) => error).then((error) => {
    clearTimeout(silence);
    mine.abort();
    if (stream !== mine) return;
    if (error?.status === 401) return on.signedOut();
    const isFull = error?.status === 503;
    link(isFull ? 'full' : 'away', isFull ? error.message : '');
    backoff = Math.min(MAX_BACKOFF_MS, backoff * (1 + Math.random()));
    timer = setTimeout(() => open(on), backoff);
  });
}

export function close(link) {
  clearTimeout(timer);
  stream?.abort();
  stream = null;
  live.link = link;
}

/** Closes the stream while the page is hidden for long: a browser has six connections to a host. */
export function watchVisibility(on) {
  let hiding;
  document.addEventListener('visibilitychange', () => {
    clearTimeout(hiding);
    if (document.hidden) {
      hiding = setTimeout(() => { close('hidden'); on.link(); }, HIDDEN_MS);
    } else if (live.link !== 'open' && live.link !== 'signedOut') {
      backoff = 500;
      open(on);
    }
  });
}
