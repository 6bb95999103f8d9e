// Runs tests one after another, and reports them in the form of Rust's test runner.

export class Runner {
  #passed = 0;
  #failed = 0;

  /** Runs `body`; a failure is printed, and doesn't keep the next test from running. */
  async test(name, body) {
    try {
      await body();
      this.#passed += 1;
      console.log(`test ${name} ... ok`);
    } catch (error) {
      this.#failed += 1;
      console.log(`test ${name} ... FAILED`);
      console.log(error instanceof Error ? error.stack : error);
    }
  }

  /** Prints the last line; the exit code. */
  finish() {
    const word = this.#failed === 0 ? "ok" : "FAILED";
    console.log(`\ntest result: ${word}. ${this.#passed} passed; ${this.#failed} failed; 0 ignored;`);
    return this.#failed === 0 ? 0 : 1;
  }
}
