// What the page shows, in the fragment of a link: a setup, the one that it's compared with, and a lesson. The
// fragment never reaches a server, and holds data only: JSON that is read field by field.

import { type Lesson, lessonOf } from "./lessons";
import { DEFAULTS, FIELDS, type Setup, SetupError, agree, get, readSetup, same } from "./setup";

/** What a link shows. */
export interface Shared {
  setup: Setup;
  /** The setup that it's compared with. */
  pinned: Setup | null;
  lesson: Lesson | null;
}

const PARTS = ["setup", "pinned", "lesson"] as const;
type Parts = Partial<Record<(typeof PARTS)[number], string>>;

/** Longer than any setup that differs from the defaults in every field. */
const MOST_CHARACTERS = 4096;

/** The fragment of what is shown. A lesson as it begins is its name alone. */
export function encodeShare({ setup, pinned, lesson }: Shared): string {
  const isFresh = lesson !== null && pinned !== null && same(setup, lesson.after) && same(pinned, lesson.before);
  const parts: Parts = isFresh ? {} : { setup: encoded(setup) };
  if (!isFresh && pinned !== null) parts.pinned = encoded(pinned);
  if (lesson !== null) parts.lesson = lesson.name;
  return `#${new URLSearchParams(parts)}`;
}

/** What differs from the defaults, as JSON in base64url. */
function encoded(setup: Setup): string {
  const changed: Record<string, Record<string, unknown>> = {};
  for (const field of FIELDS.filter((field) => !agree(setup, DEFAULTS, field))) {
    (changed[field.table] ??= {})[field.key] = get(setup, field.table, field.key);
  }
  const base64 = btoa(JSON.stringify(changed));
  return base64.replaceAll("+", "-").replaceAll("/", "_").replace(/=+$/, "");
}

/** Whether a fragment is of a link, and not a place of the page. */
export function isShare(fragment: string): boolean {
  return PARTS.some((part) => fragment.startsWith(`#${part}=`));
}

/** What a fragment shows; `null` where it's of no link. Throws a `SetupError` where it's damaged. */
export function decodeShare(fragment: string): Shared | null {
  if (!isShare(fragment)) return null;
  const parts: Parts = Object.fromEntries(new URLSearchParams(fragment.slice(1)));
  const lesson = parts.lesson === undefined ? null : lessonOf(parts.lesson);
  if (parts.lesson !== undefined && lesson === null) throw new SetupError("This link’s lesson is unknown.");
  const setup = decoded(parts.setup);
  if (lesson !== null && setup === null) return { setup: lesson.after, pinned: lesson.before, lesson };
  return { setup: setup ?? DEFAULTS, pinned: decoded(parts.pinned), lesson };
}

function decoded(text: string | undefined): Setup | null {
  if (text === undefined) return null;
  const damaged = (): SetupError => new SetupError("This link’s setup is damaged.");
  if (text.length > MOST_CHARACTERS || !/^[\w-]*$/.test(text)) throw damaged();
  let value: unknown;
  try {
    value = JSON.parse(atob(text.replaceAll("-", "+").replaceAll("_", "/")));
  } catch {
    throw damaged();
  }
  return readSetup(value);
}
