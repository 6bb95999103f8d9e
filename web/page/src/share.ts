// A setup in the fragment of a link. The fragment never reaches a server, and holds data only: JSON that is
// read field by field.

import { DEFAULTS, FIELDS, type Setup, SetupError, get, readSetup } from "./setup";

const PREFIX = "#setup=";
/** Longer than any setup that differs from the defaults in every field. */
const MOST_CHARACTERS = 4096;

/** The fragment of a setup: what differs from the defaults, as JSON in base64url. */
export function encodeShare(setup: Setup): string {
  const changed: Record<string, Record<string, unknown>> = {};
  for (const { table, key } of FIELDS) {
    const value = get(setup, table, key);
    if (value !== get(DEFAULTS, table, key)) (changed[table] ??= {})[key] = value;
  }
  const base64 = btoa(JSON.stringify(changed));
  return PREFIX + base64.replaceAll("+", "-").replaceAll("/", "_").replace(/=+$/, "");
}

/** Whether a fragment is a setup, and not a place of the page. */
export function holdsSetup(fragment: string): boolean {
  return fragment.startsWith(PREFIX);
}

/** The setup of a fragment; `null` where it holds none. Throws a `SetupError` where it's damaged. */
export function decodeShare(fragment: string): Setup | null {
  if (!holdsSetup(fragment)) return null;
  const text = fragment.slice(PREFIX.length);
  if (text.length > MOST_CHARACTERS || !/^[\w-]*$/.test(text)) {
    throw new SetupError("This link’s setup is damaged.");
  }
  let value: unknown;
  try {
    value = JSON.parse(atob(text.replaceAll("-", "+").replaceAll("_", "/")));
  } catch {
    throw new SetupError("This link’s setup is damaged.");
  }
  return readSetup(value);
}
