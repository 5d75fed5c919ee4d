// Numbers for people. A spent amount is never shown too small, and the amount left never too large.

const DIGITS = 4;

function rounded(value, direction) {
  if (value === 0) return 0;
  value = Number(value.toPrecision(12)); // a value that differs from 3.6 in the last bit is shown as 3.6, as on the command line
  const near = Number(value.toPrecision(DIGITS));
  if (direction * (near - value) >= 0) return near;
  const step = 10 ** (Math.floor(Math.log10(Math.abs(value))) - DIGITS + 1);
  return Number((near + direction * step).toPrecision(DIGITS));
}

/** A short number in decimal form, and a long one in scientific form. */
export function exact(value) {
  if (value === null || value === undefined) return "no bound";
  const size = Math.abs(value);
  if (value !== 0 && (size < 1e-4 || size >= 1e7)) return value.toExponential().replace("e+", "e").replaceAll("-", "−");
  return String(value).replace("-", "−");
}

/** `value` rounded up to four significant digits: for losses and spent amounts. */
export function up(value) {
  return value === null || value === undefined ? "no bound" : exact(rounded(value, 1));
}

/** As `up`, but always with four digits, as on the wheels of an odometer: 2.050. */
export function upOnWheels(value) {
  const near = rounded(value, 1);
  return near >= 1e-3 && near < 1e4 ? near.toPrecision(DIGITS) : exact(near);
}

/** `value` rounded down to four significant digits: for the amount left. */
export function down(value) {
  return value === null || value === undefined ? "no bound" : exact(rounded(value, -1));
}

/** A share as per cent with one decimal, rounded up. The small term only removes binary noise. */
export function percent(share) {
  return `${Math.ceil(share * 1000 - 1e-9) / 10} %`;
}

/** Whole numbers with thin spaces between thousands. */
export function count(value) {
  return String(value).replace(/\B(?=(\d{3})+(?!\d))/g, "\u2009");
}

/** An ISO time in UTC, as the ledger has it, to the second; the title attribute of callers keeps the exact one. */
export function when(iso) {
  const date = new Date(iso);
  if (Number.isNaN(date.getTime())) return iso;
  return date.toISOString().slice(0, 19).replace("T", " ");
}
