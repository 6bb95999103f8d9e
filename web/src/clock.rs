//! Seconds.

/// Seconds since some moment; only differences mean something.
#[cfg(target_family = "wasm")]
pub fn now() -> f64 {
    use wasm_bindgen::prelude::wasm_bindgen;

    #[wasm_bindgen]
    extern "C" {
        #[wasm_bindgen(js_namespace = performance, js_name = now)]
        fn milliseconds() -> f64;
    }
    milliseconds() / 1000.0
}

/// Seconds since some moment; only differences mean something.
#[cfg(not(target_family = "wasm"))]
pub fn now() -> f64 {
    use std::sync::OnceLock;
    use std::time::Instant;

    static START: OnceLock<Instant> = OnceLock::new();
    START.get_or_init(Instant::now).elapsed().as_secs_f64()
}
