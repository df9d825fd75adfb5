// The HTTP interface. The token is kept for this tab only, and is sent in a header only.

import { parseExact } from "./exact.js";

const KEPT = "rule-detector.token";
const ROOT = new URL("api/", document.baseURI);

export const session = new EventTarget();

export class ServiceError extends Error {
  constructor(status, errors) {
    super(errors.map((entry) => entry.message).join("\n") || `the service answered with status ${status}`);
    this.status = status;
    this.errors = errors;
  }
}

const SKEW_MS = 2000;
let ahead_ms = 0;

// The time by the server's clock, from which the browser's may differ by much. Its answers are dated in whole seconds.
export function serverNow() {
  return Date.now() + ahead_ms;
}

export function signedIn() {
  return sessionStorage.getItem(KEPT) !== null;
}

export function signIn(token) {
  sessionStorage.setItem(KEPT, token);
}

// `why` tells the reader who did not ask for it.
export function signOut(why = "") {
  sessionStorage.removeItem(KEPT);
  delete document.body.dataset.lacks;
  session.dispatchEvent(new CustomEvent("ended", { detail: why }));
}

const SCOPES = ["evaluate", "read", "write", "admin"];

// Asks once what the token may do. The style sheet hides what needs something else: `data-needs` of an element.
export async function learnBounds(signal) {
  if (document.body.dataset.lacks !== undefined) return;
  const { scopes, detectors } = await call("GET", "tokens/self", undefined, signal);
  const lacks = scopes === null ? [] : SCOPES.filter((scope) => !scopes.includes(scope));
  document.body.dataset.lacks = [...lacks, ...(detectors === null ? [] : ["all"])].join(" ");
}

export function may(scope) {
  return !document.body.dataset.lacks?.split(" ").includes(scope);
}

// Returns the result. `heard` gets the texts of the messages, if there are any.
export async function call(method, path, body, signal, heard = () => {}) {
  const response = await request(method, path, body, signal);
  let answer;
  try {
    answer = parseExact(await response.text());
  } catch {
    throw new ServiceError(response.status, []);
  }
  if (!answer.success) throw refusal(response.status, answer.errors);
  if (answer.messages.length) heard(answer.messages.map((entry) => entry.message));
  return answer.result;
}

const AGAIN_MS = 1000;
const [BUSY, INTERNAL] = [1401, 1500];

// Whether a failure may have passed when somebody asks again. An answer without entries is that of a proxy.
export function passes({ errors = [] }) {
  return errors.every(({ code }) => code === undefined || code === BUSY || code > INTERNAL);
}

// Calls `told` with each message of a stream of server-sent events, over one connection to `path()` after another, until it
// is aborted or refused. `failed` gets what is wrong meanwhile.
export async function follow(path, told, failed, signal) {
  while (!signal.aborted) {
    try {
      await stream(path(), told, signal);
    } catch (error) {
      if (signal.aborted) return;
      failed(error.message);
      if (!passes(error)) return;
    }
    await new Promise((resolve) => setTimeout(resolve, AGAIN_MS));
  }
}

async function stream(path, told, signal) {
  const response = await request("GET", path, undefined, signal, "text/event-stream");
  if (!response.ok) throw refusal(response.status, (await response.json().catch(() => ({}))).errors);
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  for (let rest = ""; ;) {
    const { value, done } = await reader.read().catch(() => { throw new ServiceError(0, [NO_ANSWER]); });
    if (done) return;
    const parts = (rest + value).split("\n\n");
    rest = parts.pop();
    for (const part of parts) {
      const data = part.split("\n").filter((line) => line.startsWith("data:")).map((line) => line.slice(5));
      if (!data.length) continue;
      const news = parseExact(data.join("\n"));
      if (news.errors) throw refusal(0, news.errors);
      told(news);
    }
  }
}

const NO_ANSWER = { message: "the service does not answer" };
const UNKNOWN_TOKEN = 1101;

// An error of which the service told the entries, if it did. Without a good token, nobody is signed in.
function refusal(status, entries = []) {
  const error = new ServiceError(status, entries);
  if (status === 401 || entries.some(({ code }) => code === UNKNOWN_TOKEN)) signOut(error.message);
  return error;
}

async function request(method, path, body, signal, accept = "application/json") {
  const headers = { accept, authorization: `Bearer ${sessionStorage.getItem(KEPT) ?? ""}` };
  if (body !== undefined) headers["content-type"] = "application/json";
  const sent = body === undefined || typeof body === "string" ? body : JSON.stringify(body);
  try {
    const response = await fetch(new URL(path, ROOT), { method, headers, body: sent, signal, cache: "no-store" });
    const ahead = Date.parse(response.headers.get("date")) - Date.now();
    if (!isNaN(ahead)) ahead_ms = Math.abs(ahead) > SKEW_MS ? ahead : 0;
    return response;
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ServiceError(0, [NO_ANSWER]);
  }
}

export const RULES_PAGE = 1000;

// The rules of a detector after a priority, page by page, since there may be more than one answer can hold; with
// `source`, with their texts.
export async function* rulePages(detectorId, signal, source = false, after = 0) {
  for (let page; ; after = page.at(-1).priority) {
    page = (await call("GET", `detectors/${detectorId}/rules?limit=${RULES_PAGE}&after=${after}${source ? "&source=true" : ""}`, undefined, signal)).rules;
    if (!page.length) return;
    yield page;
  }
}

// All rules of a detector.
export async function rulesOf(detectorId, signal, source = false) {
  const rules = [];
  for await (const page of rulePages(detectorId, signal, source)) rules.push(...page);
  return rules;
}

export function parseCondition(condition, signal, heard) {
  return call("POST", "conditions/parse", { condition }, signal, heard);
}
