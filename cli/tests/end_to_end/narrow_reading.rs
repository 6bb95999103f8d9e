//! Models that are read in few bits, and what reading them takes.

use super::*;

const SIZES: &str = "--layers 3 --channels 64 --heads 2 --context 64 --batch 2 --device cpu";

#[test]
fn a_plain_model_is_read_in_few_bits_and_no_training_step_is_planned() {
    let dir = tempfile::tempdir().unwrap();
    let trained = json(&ok(dir.path(), &format!("train {SIZES} --steps 20 --out a --json")));
    let asked = "generate a --prompt To --max-tokens 12 --temperature 0 --json";
    let of = |words: &str| json(&ok(dir.path(), words));
    let peak = |object: &Value| object["peak_bytes"].as_u64().unwrap();
    let [whole, eight, four] =
        ["", " --weight-bits 8", " --weight-bits 4"].map(|bits| of(&format!("{asked}{bits}")));
    for object in [&whole, &eight, &four] {
        assert_eq!(object["tokens"], 12);
    }
    assert!(peak(&whole) > peak(&eight) && peak(&eight) > peak(&four), "{whole} {eight} {four}");
    assert!(2 * peak(&whole) < trained["measured_peak_bytes"].as_u64().unwrap());
    let dry = of("generate a --weight-bits 4 --dry-run --json");
    assert_eq!(peak(&dry), peak(&four));
    assert_eq!(
        (&dry["by_class"]["gradient"], &dry["by_class"]["optimizer"]),
        (&0.into(), &0.into())
    );
    let shown = ok(dir.path(), "generate a --dry-run");
    assert!(
        stdout(&shown).contains(&format!("({} bytes) as planned", peak(&whole))),
        "{}",
        stdout(&shown)
    );
    let said = stderr(&ok(dir.path(), asked));
    assert!(said.contains(&format!("({} bytes) as planned", peak(&whole))), "{said}");

    let loss = |words: &str| of(words)["loss"].as_f64().unwrap();
    let exact = loss("eval a --json");
    assert_eq!(Some(exact), trained["heldout_loss"].as_f64());
    let [eight, four] = ["8", "4"].map(|bits| loss(&format!("eval a --weight-bits {bits} --json")));
    assert!(eight != exact && (eight - exact).abs() < 5e-3, "{eight}, {exact} exactly");
    assert!(four != exact && (four - exact).abs() < 5e-2, "{four}, {exact} exactly");
    fs::write(dir.path().join("text.txt"), "To be, or not to be. ".repeat(9)).unwrap();
    let texts = |bits: &str| loss(&format!("eval a --texts text.txt{bits} --json"));
    assert!((texts("") - texts(" --weight-bits 8")).abs() < 2e-2);

    let (code, message) = refused(dir.path(), "generate a --weight-bits 5");
    assert!(code == 2 && message.contains("must be 8 or 4, not 5"), "{message}");
    // Between what it takes in 4 bits and in 8.
    let budget = peak(&dry) + 1000;
    let (code, message) = refused(dir.path(), &format!("generate a --memory {budget}"));
    assert!(code == 3 && message.contains("reading the model takes"), "{message}");
    assert!(message.contains("fits, with"), "{message}");
}
