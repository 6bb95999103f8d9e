//! Shaders that go wrong where `TIGHTROPE_FAULTY_SHADERS` lists them, as they may with a driver that nobody tried. For tests.
//!
//! It lists beginnings of kernels' labels, and functions that they call, with commas: `norm=refused`, `subgroupShuffleXor=wrong`.

use crate::device::Device;

/// How a shader goes wrong.
#[derive(Clone, Copy)]
enum Fault {
    /// It writes nothing.
    Wrong,
    /// It doesn't compile.
    Refused,
    /// The device is lost.
    Lost,
}

fn listed(label: &str, text: &str) -> Option<Fault> {
    let all = std::env::var("TIGHTROPE_FAULTY_SHADERS").ok()?;
    let entry = all.split(',').find_map(|entry| {
        let (name, what) = entry.split_once('=')?;
        (label.starts_with(name) || text.contains(&format!("{name}("))).then_some(what)
    });
    match entry? {
        "wrong" => Some(Fault::Wrong),
        "refused" => Some(Fault::Refused),
        "fault" => Some(Fault::Lost),
        other => panic!("a shader can't be `{other}`"),
    }
}

/// The text of a shader, as it goes wrong.
pub fn changed(device: &Device, label: &str, entry: &str, text: String) -> String {
    match listed(label, &text) {
        None => text,
        Some(Fault::Refused) => format!("{text}\nno language"),
        Some(Fault::Lost) => {
            device.device.destroy();
            text
        }
        Some(Fault::Wrong) => {
            let at = text.find(&format!("fn {entry}(")).expect("an entry");
            let body = at + text[at..].find('{').expect("a body") + 1;
            let (before, after) = text.split_at(body);
            format!("{before}\n    if (params.end_group > 0u) {{ return; }}{after}")
        }
    }
}
