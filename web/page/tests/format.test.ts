import { ago, bytes, clock, count, duration, exact, percent, roundBytes } from "../src/format";
import { type Tests, equal } from "./check";

export const tests: Tests = {
  bytes_keep_three_digits() {
    const cases: [number, string][] = [
      [0, "0 B"],
      [999, "999 B"],
      [1000, "0.98 KiB"],
      [1024, "1.00 KiB"],
      [1_234_567, "1.18 MiB"],
      [20_648_192, "19.7 MiB"],
      [512 * 1024 * 1024, "512 MiB"],
      [3 * 2 ** 40, "3.00 TiB"],
    ];
    for (const [value, text] of cases) equal(bytes(value), text);
  },
  round_bytes_have_no_needless_zeros() {
    equal(roundBytes(5 * 2 ** 20), "5 MiB");
    equal(roundBytes(2.5 * 2 ** 20), "2.5 MiB");
    equal(roundBytes(100 * 2 ** 20), "100 MiB");
    equal(roundBytes(0), "0 B");
  },
  counts() {
    equal(count(41_000), "41.0k");
    equal(count(124_439_808), "124M");
    equal(exact(20_648_192), "20,648,192");
    equal(exact(12), "12");
  },
  times() {
    equal(duration(0.0221), "22.1 ms");
    equal(duration(0.00042), "0.42 ms");
    equal(duration(4.2e-6), "4.2 µs");
    equal(duration(0.5), "500 ms");
    equal(duration(1.234), "1.23 s");
    equal(clock(42), "0:42");
    equal(clock(3723), "1:02:03");
    equal(ago(30), "less than a minute ago");
    equal(ago(60), "1 minute ago");
    equal(ago(7300), "2 hours ago");
  },
  percentages() {
    equal(percent(0), "0.0 %");
    equal(percent(0.0001), "< 0.1 %");
    equal(percent(0.015), "1.5 %");
    equal(percent(1), "100 %");
  },
};
