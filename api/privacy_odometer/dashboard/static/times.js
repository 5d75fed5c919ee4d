// The time until a moment by this browser's clock. It is only for display: the service uses the ledger's time.

const MINUTE = 60;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;

/** For example "in 3 h", rounded up; "now" if the moment has passed. */
export function until(iso, now = Date.now()) {
  const seconds = (new Date(iso).getTime() - now) / 1000;
  if (Number.isNaN(seconds)) return `at ${iso}`;
  if (seconds <= 0) return "now";
  if (seconds < 2 * MINUTE) return "in under 2 min";
  if (seconds < 2 * HOUR) return `in ${Math.ceil(seconds / MINUTE)} min`;
  if (seconds < 2 * DAY) return `in ${Math.ceil(seconds / HOUR)} h`;
  return `in ${Math.ceil(seconds / DAY)} days`;
}
