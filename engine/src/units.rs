//! Numbers as people read them: three digits and a unit.
//!
//! ```
//! use std::time::Duration;
//! use tightrope::units::{human_bytes, human_count, human_time, plural};
//!
//! assert_eq!(human_count(124_439_808.0), "124M");
//! assert_eq!(human_bytes(1_331_439_862), "1.24 GiB");
//! assert_eq!(human_time(Duration::from_secs(125)), "2m05s");
//! assert_eq!([plural(1, "step", "steps"), plural(2, "step", "steps")], ["1 step", "2 steps"]);
//! ```

use std::time::Duration;

/// `950`, `12.3k`, `4.56M`: three digits.
pub fn human_count(count: f64) -> String {
    const UNITS: [&str; 5] = ["", "k", "M", "G", "T"];
    scaled(count, 1000.0, &UNITS, "")
}

/// `512 B`, `1.24 GiB`: three digits.
pub fn human_bytes(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
    scaled(bytes as f64, 1024.0, &UNITS, " ")
}

/// `2e-5`, `6.67e-4`: at most three digits and a power of ten, as learning rates are written.
pub fn human_rate(rate: f64) -> String {
    let digits = format!("{rate:.2e}");
    let (digits, power) = digits.split_once('e').unwrap_or((&digits, "0"));
    let digits = digits.trim_end_matches('0').trim_end_matches('.');
    format!("{}e{power}", if digits.is_empty() { "0" } else { digits })
}

/// `0.4s`, `12s`, `2m05s`, `3h20m`, `2d04h`.
pub fn human_time(time: Duration) -> String {
    if time.as_secs_f64() < 9.95 {
        return format!("{:.1}s", time.as_secs_f64());
    }
    let seconds = time.as_secs_f64().round() as u64;
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3600 => format!("{minutes}m{:02}s", seconds % 60),
        3600..86_400 => format!("{hours}h{:02}m", minutes % 60),
        _ => format!("{days}d{:02}h", hours % 24),
    }
}

/// `value` in the unit that leaves at most three digits before the point.
fn scaled(value: f64, base: f64, units: &[&str], space: &str) -> String {
    let mut value = value;
    let mut unit = 0;
    // 999.5 would print as 1000.
    while value.abs() >= 999.5 && unit + 1 < units.len() {
        value /= base;
        unit += 1;
    }
    let decimals = match value.abs() {
        _ if unit == 0 => 0,
        x if x < 9.995 => 2,
        x if x < 99.95 => 1,
        _ => 0,
    };
    format!("{value:.decimals$}{space}{}", units[unit])
}

/// `1.24 GiB (1331439862 bytes)`: for people, and to the byte.
pub fn exact_bytes(bytes: u64) -> String {
    format!("{} ({bytes} bytes)", human_bytes(bytes))
}

/// `1 step`, `2 steps`: a count with its noun.
pub fn plural(count: usize, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}

/// A value as the text of a file.
pub(crate) fn json_text(value: &serde_json::Value) -> anyhow::Result<Vec<u8>> {
    Ok((serde_json::to_string_pretty(value)? + "\n").into_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_for_people() {
        let counts = [0.0, 7.0, 999.0, 999.6, 12_345.0, 123_456.0, 999_600.0, 4.56e6, 1e18];
        let expected = ["0", "7", "999", "1.00k", "12.3k", "123k", "1.00M", "4.56M", "1000000T"];
        assert_eq!(counts.map(human_count), expected);
        let bytes = [0, 512, 1023, 1024, 1 << 20, 1_331_439_862, u64::MAX];
        let expected =
            ["0 B", "512 B", "1.00 KiB", "1.00 KiB", "1.00 MiB", "1.24 GiB", "16384 PiB"];
        assert_eq!(bytes.map(human_bytes), expected);
        let rates = [0.0, 2e-5, 0.512 / 768.0, 4e-3, 1.0];
        let expected = ["0e0", "2e-5", "6.67e-4", "4e-3", "1e0"];
        assert_eq!(rates.map(human_rate), expected);
        let times = [0.0, 0.44, 9.94, 9.96, 59.4, 59.6, 125.0, 3600.0, 12_000.0, 187_200.0];
        let expected =
            ["0.0s", "0.4s", "9.9s", "10s", "59s", "1m00s", "2m05s", "1h00m", "3h20m", "2d04h"];
        assert_eq!(times.map(|time| human_time(Duration::from_secs_f64(time))), expected);
    }
}
