// The few assertions that the unit tests need.

export type Tests = Record<string, () => void | Promise<void>>;

export function equal(actual: unknown, expected: unknown): void {
  const [a, b] = [JSON.stringify(actual), JSON.stringify(expected)];
  if (a !== b) throw new Error(`got ${a}, not ${b}`);
}

export function throws(body: () => unknown, message: RegExp): void {
  try {
    body();
  } catch (error) {
    if (error instanceof Error && message.test(error.message)) return;
    throw new Error(`threw ${String(error)}, not ${String(message)}`);
  }
  throw new Error("threw nothing");
}
