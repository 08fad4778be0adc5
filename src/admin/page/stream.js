// The connection to the service: server-sent events over fetch, because EventSource sends no
// Authorization header. The token lives in a variable of this module and nowhere else.

const SILENCE_MAX_MS = 5000; // a state comes each second
const BACKOFF_MS = [250, 500, 1000, 2000, 3000];

let token = "";

export class Unauthorized extends Error {}

/** Sets the token that requests carry; an empty one removes it. */
export function setToken(text) {
  token = text;
}

async function request(path, options = {}) {
  const headers = { ...options.headers };
  if (token) headers.Authorization = `Bearer ${token}`;
  const response = await fetch(path, {
    ...options, headers, cache: "no-store", credentials: "same-origin", redirect: "error", referrerPolicy: "no-referrer",
  });
  if (response.status === 401) throw new Unauthorized();
  return response;
}

/** The JSON of a GET. An error carries the text of the service. */
export async function getJson(path, parameters) {
  const query = new URLSearchParams(Object.entries(parameters).filter(([, value]) => value !== ""));
  const response = await request(`${path}?${query}`, { signal: AbortSignal.timeout(SILENCE_MAX_MS) });
  const body = await response.json().catch(() => ({}));
  if (!response.ok) throw new Error(body.error ?? `HTTP status ${response.status}`);
  return body;
}

/** Splits a stream of text into events: calls `emit(name, data)` for each. */
export function eventParser(emit) {
  let rest = "", name = "", data = [];
  return (text) => {
    const lines = (rest + text).split("\n");
    rest = lines.pop();
    for (const raw of lines) {
      const line = raw.endsWith("\r") ? raw.slice(0, -1) : raw;
      if (line === "") {
        if (data.length) emit(name || "message", data.join("\n"));
        name = "";
        data = [];
      } else if (line.startsWith("event:")) {
        name = line.slice(6).trim();
      } else if (line.startsWith("data:")) {
        data.push(line.slice(5).replace(/^ /, ""));
      }
    }
  };
}

/** Reads one stream until it ends, is silent for too long, or fails. */
async function readStream(path, emit, opened) {
  const abort = new AbortController();
  let timer;
  const heard = () => {
    clearTimeout(timer);
    timer = setTimeout(() => abort.abort(new Error("no data")), SILENCE_MAX_MS);
  };
  heard();
  try {
    const response = await request(path, { signal: abort.signal, headers: { Accept: "text/event-stream" } });
    if (!response.ok || !response.body) throw new Error(`HTTP status ${response.status}`);
    opened();
    const parse = eventParser(emit);
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    for (;;) {
      const { done, value } = await reader.read();
      if (done) throw new Error("the stream ended");
      heard();
      parse(value);
    }
  } finally {
    clearTimeout(timer);
    abort.abort();
  }
}

/**
 * Keeps a stream open until the service asks for a token, which rejects with Unauthorized.
 * Calls `emit(name, data)` for each event and `status(open, reason)` when the state changes.
 */
export async function keepStreaming(path, emit, status) {
  for (let attempt = 0; ;) {
    try {
      await readStream(path, emit, () => {
        attempt = 0;
        status(true, "");
      });
    } catch (error) {
      if (error instanceof Unauthorized) throw error;
      status(false, error.message);
    }
    const wait = BACKOFF_MS[Math.min(attempt++, BACKOFF_MS.length - 1)];
    await new Promise((resume) => setTimeout(resume, wait * (0.75 + Math.random() / 2)));
  }
}
