// The live numbers: one stream, and the samples of the last five minutes.

import * as api from './api.js';

export const WINDOW_S = 300;
const SILENCE_MS = 10_000;
const HIDDEN_MS = 30_000;

/** The newest numbers. `link` is connecting, open, away, full, hidden or signedOut. */
export const live = {link: 'connecting', why: '', info: {}, last: null, samples: []};

/** Adds a sample to those of its second: one of the history lacks the true span that its tick has told. */
function add(sample) {
  const {samples} = live;
  const at = samples.findLastIndex(({t}) => t < sample.t) + 1;
  const old = samples[at]?.t === sample.t ? samples[at] : null;
  samples.splice(at, old ? 1 : 0, {...old, ...sample});
  while (samples[0].t <= samples.at(-1).t - WINDOW_S) samples.shift();
}

/** The columns of a history as samples. */
const rows = history =>
  history.t.map((_, i) => Object.fromEntries(Object.entries(history).map(([name, values]) => [name, values[i]])));

/** The events of a body of type text/event-stream. */
async function* events(body) {
  let text = '';
  for await (const part of body.pipeThrough(new TextDecoderStream())) {
    const blocks = (text + part).split('\n\n');
    text = blocks.pop();
    for (const block of blocks) {
      const field = name => block.match(RegExp(`^${name}: ?(.*)$`, 'm'))?.[1];
      if (field('event')) yield [field('event'), JSON.parse(field('data'))];
    }
  }
}

let stream;
let timer;
let backoff = 500;

/** Opens the stream, and opens it again when it ends, later each time. */
export async function open(on) {
  close(live.link);
  const mine = (stream = new AbortController());
  let silence;
  const heard = () => {
    clearTimeout(silence);
    silence = setTimeout(() => mine.abort(), SILENCE_MS);
  };
  const setLink = (link, why = '') => {
    Object.assign(live, {link, why});
    on.link();
  };
  const read = async () => {
    heard();
    const response = await api.live(mine.signal);
    if (!response.ok) throw await api.errorOf(response);
    for await (const [name, data] of events(response.body)) {
      if (mine.signal.aborted || name === 'bye') return;
      heard();
      if (name === 'hello') {
        backoff = 500;
        live.info = data;
        rows(data.history).forEach(add);
        setLink('open');
      } else {
        const {store, top, watched, reload, ...sample} = (live.last = data);
        add(sample);
        on.tick();
      }
    }
  };
  const error = await read().catch(why => why);
  clearTimeout(silence);
  mine.abort();
  if (stream !== mine) return;
  if (error?.status === 401) return api.on.signedOut();
  const isFull = error?.status === 503;
  setLink(isFull ? 'full' : 'away', isFull ? error.message : '');
  backoff = Math.min(15_000, backoff * (1 + Math.random()));
  timer = setTimeout(open, backoff, on);
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
    if (live.link === 'signedOut') return;
    backoff = 500;
    if (document.hidden)
      hiding = setTimeout(() => {
        close('hidden');
        on.link();
      }, HIDDEN_MS);
    else if (live.link !== 'open') open(on);
  });
}
