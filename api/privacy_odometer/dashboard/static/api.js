// Reads the service's JSON API with the sign-in cookie. It only sends GET: these pages change nothing.

import { h, fill } from "./dom.js";

const TIMEOUT_MS = 15000;

/** A text of the service as a sentence: with a capital first letter and a full stop. */
export function sentence(text) {
  if (!text) return "";
  const end = /[.!?…]$/.test(text) ? "" : ".";
  return `${text[0].toUpperCase()}${text.slice(1)}${end}`;
}

/** A failed request: the status, title, detail and type of the service's problem document, if it sent one. */
export class Problem extends Error {
  constructor(status, title, detail, type = "") {
    super(title);
    this.status = status;
    this.detail = detail;
    this.type = type;
  }

  /** The title and the detail as sentences. */
  text() {
    return `${sentence(this.message)} ${sentence(this.detail)}`.trim();
  }
}

/** The JSON at `path`. Throws Problem. Goes to the sign-in page if the sign-in is no longer valid. */
export async function get(path) {
  let response;
  try {
    response = await fetch(path, {
      headers: { accept: "application/json" },
      cache: "no-store",
      signal: AbortSignal.timeout(TIMEOUT_MS),
    });
  } catch (error) {
    throw new Problem(0, "the service did not answer", "it may be restarting, or the network is down; try again in a moment");
  }
  if (response.status === 401) {
    location.assign(`/sign-in?next=${encodeURIComponent(location.pathname)}`);
    return new Promise(() => {}); // the browser leaves this page, so nothing may continue here
  }
  const body = await response.json().catch(() => null);
  if (!response.ok || body === null) {
    const title = body?.title ?? `the service answered ${response.status}`;
    throw new Problem(response.status, title, body?.detail ?? "it gave no reason", body?.type);
  }
  return body;
}

/** Shows a problem, and says whether the numbers on the page may be out of date. */
export function showProblem(place, problem) {
  const unsure = problem.status === 0 || problem.status >= 500;
  const meaning = unsure
    ? "Until the service is back, it refuses charges and does not guess. The numbers on this page may be out of date."
    : "";
  fill(
    place,
    h(
      "div",
      { class: "notice bad", role: "alert" },
      h("strong", {}, sentence(problem.message)),
      h("p", {}, sentence(problem.detail)),
      meaning ? h("p", {}, meaning) : null,
    ),
  );
}

/** Runs `work`. Shows a Problem at `place`; clears `place` on success. */
export async function attempt(place, work) {
  try {
    await work();
    fill(place);
  } catch (error) {
    if (!(error instanceof Problem)) throw error;
    showProblem(place, error);
  }
}

/** Runs `load` now and each time `button` is pressed. Shows problems at `place`. */
export function refreshing(button, place, load) {
  const run = async () => {
    button.disabled = true;
    await attempt(place, load).finally(() => {
      button.disabled = false;
    });
  };
  button.addEventListener("click", run);
  return run();
}
