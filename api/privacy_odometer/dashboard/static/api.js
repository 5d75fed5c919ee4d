// Reads from the service's own JSON API with the sign-in cookie. GET only: these pages change nothing.

import { h, fill } from "./dom.js";

const TIMEOUT_MS = 15000;

/** What went wrong, in the words of the service's problem body where it sent one. */
export class Problem extends Error {
  constructor(status, title, detail, type = "") {
    super(title);
    this.status = status;
    this.detail = detail;
    this.type = type;
  }
}

/** The JSON at `path`. Throws Problem; leaves for the sign-in page when the key is no longer valid. */
export async function get(path) {
  let response;
  try {
    response = await fetch(path, {
      headers: { accept: "application/json" },
      cache: "no-store",
      signal: AbortSignal.timeout(TIMEOUT_MS),
    });
  } catch (error) {
    throw new Problem(0, "The service did not answer", "It may be restarting, or the network is down. Try again in a moment.");
  }
  if (response.status === 401) {
    location.assign(`/sign-in?next=${encodeURIComponent(location.pathname)}`);
    return new Promise(() => {}); // the page is going away: nothing that waits for this should go on
  }
  const body = await response.json().catch(() => null);
  if (!response.ok || body === null) {
    const title = body?.title ?? `The service answered ${response.status}`;
    throw new Problem(response.status, title, body?.detail ?? "It did not say why.", body?.type);
  }
  return body;
}

/** Say what failed, and what that means for what is on the page. */
export function showProblem(place, problem) {
  const unsure = problem.status === 0 || problem.status >= 500;
  const meaning = unsure
    ? "Until it is back, charges are refused rather than guessed. Numbers still on this page may be out of date."
    : "";
  fill(
    place,
    h(
      "div",
      { class: "notice bad", role: "alert" },
      h("strong", {}, problem.message),
      h("p", {}, problem.detail ?? ""),
      meaning ? h("p", {}, meaning) : null,
    ),
  );
}

/** Run `work`; a Problem is shown at `place`, success clears it. */
export async function attempt(place, work) {
  try {
    await work();
    fill(place);
  } catch (error) {
    if (!(error instanceof Problem)) throw error;
    showProblem(place, error);
  }
}

/** Run `load` now and at every press of `button`; problems go to `place`. */
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
