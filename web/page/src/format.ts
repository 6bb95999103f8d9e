// Numbers as text.

const BYTE_UNITS = ["B", "KiB", "MiB", "GiB", "TiB"] as const;
const COUNT_UNITS = ["", "k", "M", "G", "T"] as const;
const BINARY = 1024;
const DECIMAL = 1000;
/** Significant digits of a scaled number. */
const DIGITS = 3;

function scaled(value: number, base: number, units: readonly string[]): [string, string] {
  let unit = 0;
  let rest = value;
  // A number that would be printed as 1000 of one unit is 1 of the next.
  while (unit < units.length - 1 && Number(rest.toPrecision(DIGITS)) >= Math.min(base, DECIMAL)) {
    rest /= base;
    unit += 1;
  }
  const whole = Math.max(1, Math.floor(Math.log10(Math.max(rest, 1))) + 1);
  const text = unit === 0 ? String(Math.round(rest)) : rest.toFixed(Math.max(0, DIGITS - whole));
  return [text, units[unit] ?? ""];
}

/** `1234567` as `1.18 MiB`. */
export function bytes(value: number): string {
  return scaled(value, BINARY, BYTE_UNITS).join(" ");
}

/** A round number of bytes without needless zeros: `5 MiB`. */
export function roundBytes(value: number): string {
  return bytes(value).replace(/(\.\d*?)0+ /, "$1 ").replace(". ", " ");
}

/** `1234567` as `1,234,567`. */
export function exact(value: number): string {
  return Math.round(value).toString().replace(/\B(?=(\d{3})+$)/g, ",");
}

/** `1234567` as `1.23M`. */
export function count(value: number): string {
  return scaled(value, DECIMAL, COUNT_UNITS).join("");
}

/** Seconds as `4.2 µs`, `0.42 ms`, `12 ms`, `1.2 s`. */
export function duration(seconds: number): string {
  if (seconds >= 1) return `${seconds.toFixed(seconds < 10 ? 2 : 1)} s`;
  const ms = seconds * 1000;
  if (ms > 0 && ms < 0.1) return `${(ms * 1000).toFixed(1)} µs`;
  return ms >= 100 ? `${Math.round(ms)} ms` : ms >= 1 ? `${ms.toFixed(1)} ms` : `${ms.toFixed(2)} ms`;
}

/** Seconds as a clock: `0:42`, `1:02:03`. */
export function clock(seconds: number): string {
  const whole = Math.max(0, Math.round(seconds));
  const pad = (value: number): string => String(value).padStart(2, "0");
  const hours = Math.floor(whole / 3600);
  const minutes = Math.floor(whole / 60) % 60;
  return hours > 0 ? `${hours}:${pad(minutes)}:${pad(whole % 60)}` : `${minutes}:${pad(whole % 60)}`;
}

/** How long ago, in words. */
export function ago(seconds: number): string {
  if (seconds < 60) return "less than a minute ago";
  const [value, unit] =
    seconds < 3600
      ? [seconds / 60, "minute"]
      : seconds < 86_400
        ? [seconds / 3600, "hour"]
        : [seconds / 86_400, "day"];
  const whole = Math.floor(value);
  return `${whole} ${unit}${whole === 1 ? "" : "s"} ago`;
}

/** A share of 1 as a percentage. */
export function percent(share: number): string {
  const value = share * 100;
  return value > 0 && value < 0.1 ? "< 0.1 %" : `${value.toFixed(value < 10 ? 1 : 0)} %`;
}
