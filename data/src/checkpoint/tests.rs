use std::fs;
use std::io;

use serde_json::json;
use tempfile::{TempDir, tempdir};
use tightrope_core::{DType, Type};

use super::save::{lock, prune};
use super::*;
use crate::permutation::mix;

pub fn manifest(step: u64) -> Manifest {
    let files = [Source::new("text.txt", 1000)];
    Manifest {
        format: FORMAT,
        step,
        tokens_seen: step * 64,
        seed: 1337,
        data: DataState::new(step * 4, &files, "byte", 0.1),
        schedule: json!({"kind": "cosine", "lr": 6e-4}),
        settings: json!({"train": {"lr": 0.000_3, "weight_decay": 0.1 + 0.2}}),
        model: json!({"family": "gpt2", "layers": 2}),
        base: None,
        teacher: None,
        evaluations: None,
        checksums: BTreeMap::new(),
    }
}

/// The checkpoint with the lowest loss was pruned like any other.
#[test]
fn the_best_one_stays_beside_the_newest() {
    let root = tempdir().unwrap();
    let mut evaluations = Evaluations { keeps_best: true, ..Evaluations::default() };
    let mut save = |step, loss: f64, keep| {
        evaluations.add(step, loss);
        let manifest = Manifest { evaluations: Some(evaluations), ..manifest(step) };
        save(root.path(), manifest, contents(&elements(step)), keep).unwrap();
        steps(&root)
    };
    assert_eq!(save(1, f64::NAN, 2), [1]);
    assert_eq!(save(2, 0.1 + 0.2, 2), [1, 2]);
    // Not lower.
    assert_eq!(save(3, 0.1 + 0.2, 2), [2, 3]);
    assert_eq!(save(4, f64::INFINITY, 2), [2, 3, 4]);
    assert_eq!(save(5, 0.5, 1), [2, 5]);
    let (newest, _) = latest_complete(root.path()).unwrap();
    let read = newest.manifest.evaluations.unwrap();
    assert_eq!(read.best, Some(Best { step: 2, loss: 0.1 + 0.2 }));
    assert_eq!((read.last, read.since, read.kept()), (5, 3, Some(2)));
    assert_eq!(save(6, 0.25, 1), [6]);
    // A run that no longer keeps it.
    evaluations.keeps_best = false;
    let manifest = Manifest { evaluations: Some(evaluations), ..manifest(7) };
    super::save(root.path(), manifest, contents(&elements(7)), 1).unwrap();
    assert_eq!(steps(&root), [7]);
}

/// Elements that hold the step number.
fn elements(step: u64) -> Vec<u8> {
    (0..16).flat_map(|i| (step as f32 + i as f32).to_le_bytes()).collect()
}

fn contents(bytes: &[u8]) -> Contents<'_> {
    let ty = Type::new(DType::F32, [4, 4]);
    Contents {
        model: vec![
            Tensor::new("wte.weight", ty.clone(), bytes),
            Tensor::new("wpe.weight", ty.clone(), bytes),
        ],
        optimizer: vec![Tensor::new("wte.weight.m", ty, bytes)],
        extra: vec![("config.json".into(), b"{\"model_type\": \"gpt2\"}\n".to_vec())],
    }
}

/// Saves a checkpoint whose tensors hold the step number.
fn save_step(root: &Path, step: u64, keep: usize) -> Result<PathBuf> {
    let saved = save(root, manifest(step), contents(&elements(step)), keep)?;
    assert!(saved.left.is_empty(), "{:?}", saved.left);
    Ok(saved.path)
}

fn steps(root: &TempDir) -> Vec<u64> {
    list(root).unwrap().into_iter().map(|(step, _)| step).collect()
}

/// Names in the checkpoints folder that start with a dot, but for the lock.
fn hidden(root: &TempDir) -> Vec<String> {
    let names = entries(&root.path().join(FOLDER)).unwrap().into_iter();
    names.map(|(name, _)| name).filter(|name| name.starts_with('.') && name != LOCK).collect()
}

#[test]
fn what_is_saved_comes_back() {
    let root = tempdir().unwrap();
    let path = save_step(root.path(), 7, 2).unwrap();
    assert_eq!(path, root.path().join("checkpoints/step-7"));
    let (checkpoint, skipped) = latest_complete(&root).unwrap();
    assert!(skipped.is_empty());
    let Manifest { checksums, .. } = &checkpoint.manifest;
    assert_eq!(checksums.len(), 6);
    assert_eq!(checkpoint.manifest, Manifest { checksums: checksums.clone(), ..manifest(7) });
    assert_eq!(checkpoint.model.get("wpe.weight").unwrap().to_f32().unwrap()[1], 8.0);
    assert_eq!(checkpoint.optimizer.get("wte.weight.m").unwrap().shape, [4, 4]);
    assert!(checkpoint.extra("config.json").unwrap().starts_with(b"{"));
    assert!(checkpoint.extra("../step-7/config.json").is_err());
    assert!(checkpoint.extra("absent").is_err());
    // Another process that trains in the run may remove it now.
    fs::remove_dir_all(&path).unwrap();
    assert!(checkpoint.extra("config.json").unwrap().starts_with(b"{"));
}

#[test]
fn equal_states_give_equal_bytes_and_no_trace_of_place_or_time() {
    let (a, b) = (tempdir().unwrap(), tempdir().unwrap());
    let (a, b) = (save_step(a.path(), 3, 1).unwrap(), save_step(b.path(), 3, 1).unwrap());
    for name in [MANIFEST, MODEL, OPTIMIZER, "config.json"] {
        assert_eq!(fs::read(a.join(name)).unwrap(), fs::read(b.join(name)).unwrap(), "{name}");
    }
    let text = fs::read_to_string(a.join(MANIFEST)).unwrap();
    assert!(!text.contains(std::env::temp_dir().to_str().unwrap()), "{text}");
}

#[test]
fn older_ones_are_pruned_and_saving_a_step_again_replaces_it() {
    let root = tempdir().unwrap();
    for step in [1, 5, 10, 15] {
        save_step(root.path(), step, 2).unwrap();
    }
    assert_eq!(steps(&root), [10, 15]);
    save_step(root.path(), 15, 0).unwrap();
    assert_eq!(steps(&root), [15]);
    assert!(hidden(&root).is_empty());
    latest_complete(&root).unwrap();
}

#[test]
fn a_run_without_checkpoints_says_so() {
    let root = tempdir().unwrap();
    assert!(steps(&root).is_empty());
    let error = latest_complete(&root).unwrap_err().to_string();
    assert!(error.contains("there is none"), "{error}");
    for stray in ["step-x", "step-01", "step-", "steps", ".tmp-step-9"] {
        fs::create_dir_all(root.path().join(FOLDER).join(stray)).unwrap();
    }
    assert!(steps(&root).is_empty());
}

#[test]
fn what_dead_processes_left_is_finished_or_removed() {
    let root = tempdir().unwrap();
    save_step(root.path(), 1, 5).unwrap();
    let folder = root.path().join(FOLDER);
    for stale in [".tmp-step-1", ".tmp-step-2", ".tmp-step-9"] {
        fs::create_dir(folder.join(stale)).unwrap();
        fs::write(folder.join(stale).join(MODEL), "half").unwrap();
    }
    fs::rename(folder.join("step-1"), folder.join(".replaced-step-1")).unwrap();
    assert_eq!(latest_complete(&root).unwrap().0.manifest.step, 1);
    save_step(root.path(), 2, 5).unwrap();
    assert_eq!(steps(&root), [1, 2]);
    assert!(hidden(&root).is_empty(), "{:?}", hidden(&root));
}

/// Each file of a checkpoint with its bytes.
#[test]
fn what_a_dead_process_left_is_removed_at_the_next_start_unless_one_is_saving() {
    let root = tempdir().unwrap();
    assert!(tidy(&root).unwrap().is_empty(), "it has no checkpoint yet");
    save_step(root.path(), 1, 2).unwrap();
    let folder = root.path().join(FOLDER);
    let left = temporary_of(&folder, 0);
    let saving = lock(&folder).unwrap();
    tidy(&root).unwrap();
    assert!(left.exists(), "another process may be at it");
    drop(saving);
    assert!(tidy(&root).unwrap().is_empty());
    assert!(!left.exists());
    assert_eq!(steps(&root), [1]);
}

/// A folder that a process left while it removed the checkpoint of `step`.
fn temporary_of(folder: &Path, step: u64) -> PathBuf {
    let left = folder.join(format!("{TEMPORARY}{step}"));
    fs::create_dir(&left).unwrap();
    fs::write(left.join(MODEL), "half").unwrap();
    left
}

#[test]
fn what_cannot_be_removed_is_told_and_fails_no_checkpoint() {
    let root = tempdir().unwrap();
    (1..4).for_each(|step| drop(save_step(root.path(), step, 3).unwrap()));
    let folder = root.path().join(FOLDER);
    // A folder with something in it, over which none can be renamed.
    let left = temporary_of(&folder, 1);
    let told = prune(&folder, root.path(), 3, (1, None));
    assert_eq!(told.len(), 1);
    assert!(told[0].to_string().contains("step-1"), "{told:?}");
    assert_eq!(steps(&root), [1, 3]);
    fs::remove_dir_all(left).unwrap();
}

#[cfg(unix)]
#[test]
fn a_run_whose_checkpoints_are_a_link_is_refused() {
    let (root, elsewhere) = (tempdir().unwrap(), tempdir().unwrap());
    std::os::unix::fs::symlink(elsewhere.path(), root.path().join(FOLDER)).unwrap();
    let refused = save_step(root.path(), 1, 2).unwrap_err().to_string();
    assert!(refused.contains("link"), "{refused}");
    tidy(&root).unwrap_err();
    assert_eq!(fs::read_dir(elsewhere.path()).unwrap().count(), 0);
}

#[cfg(unix)]
#[test]
fn a_checkpoint_with_a_link_in_it_is_passed_over() {
    let (root, elsewhere) = (tempdir().unwrap(), tempdir().unwrap());
    save_step(root.path(), 1, 2).unwrap();
    let newest = save_step(root.path(), 2, 2).unwrap();
    for (file, bytes) in files(&newest) {
        let (name, target) = (file.file_name().unwrap(), elsewhere.path().join("file"));
        fs::rename(&file, &target).unwrap();
        std::os::unix::fs::symlink(&target, &file).unwrap();
        let (checkpoint, skipped) = latest_complete(&root).unwrap();
        assert_eq!(checkpoint.manifest.step, 1, "{name:?}");
        let reason = &skipped[0].reason;
        assert!(
            reason.contains(name.to_str().unwrap()) && reason.contains("is a link"),
            "{reason}"
        );
        fs::remove_file(&file).unwrap();
        fs::write(&file, bytes).unwrap();
    }
    assert_eq!(latest_complete(&root).unwrap().0.manifest.step, 2);
}

fn files(path: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let entries = entries(path).unwrap().into_iter();
    entries.map(|(_, path)| (path.clone(), fs::read(path).unwrap())).collect()
}

#[test]
fn every_truncation_is_found_and_the_one_before_is_used() {
    let root = tempdir().unwrap();
    save_step(root.path(), 1, 2).unwrap();
    let newest = save_step(root.path(), 2, 2).unwrap();
    for (file, bytes) in files(&newest) {
        let name = file.file_name().unwrap().to_str().unwrap();
        for len in 0..bytes.len() {
            fs::write(&file, &bytes[..len]).unwrap();
            let (checkpoint, skipped) = latest_complete(&root).unwrap();
            assert_eq!(checkpoint.manifest.step, 1, "{name} cut to {len}");
            assert_eq!(skipped[0].path, newest);
            assert!(skipped[0].reason.contains(name), "{}", skipped[0].reason);
        }
        fs::remove_file(&file).unwrap();
        assert_eq!(latest_complete(&root).unwrap().1.len(), 1);
        fs::write(&file, [&bytes[..], b" "].concat()).unwrap();
        assert_eq!(latest_complete(&root).unwrap().1.len(), 1, "{name} with a byte more");
        fs::write(&file, &bytes).unwrap();
    }
    assert_eq!(latest_complete(&root).unwrap().0.manifest.step, 2);
}

#[test]
fn every_flipped_bit_is_found_and_tensors_are_named() {
    let root = tempdir().unwrap();
    save_step(root.path(), 1, 2).unwrap();
    let newest = save_step(root.path(), 2, 2).unwrap();
    for (file, bytes) in files(&newest) {
        let name = file.file_name().unwrap().to_str().unwrap();
        for at in 0..bytes.len() {
            let mut flipped = bytes.clone();
            flipped[at] ^= 1 << (mix(at as u64) % 8);
            fs::write(&file, &flipped).unwrap();
            let (checkpoint, skipped) = latest_complete(&root).unwrap();
            assert_eq!(checkpoint.manifest.step, 1, "byte {at} of {name}");
            assert!(skipped[0].reason.contains(name), "{}", skipped[0].reason);
            if name == MODEL && at >= bytes.len() - 64 {
                assert!(skipped[0].reason.contains("\"wpe.weight\""), "{}", skipped[0].reason);
            }
        }
        fs::write(&file, &bytes).unwrap();
    }
}

#[test]
fn damage_everywhere_is_listed() {
    let root = tempdir().unwrap();
    for step in [1, 2] {
        let path = save_step(root.path(), step, 2).unwrap();
        fs::write(path.join(MODEL), "").unwrap();
    }
    let error = latest_complete(&root).unwrap_err().to_string();
    assert!(
        error.contains("step-1") && error.contains("step-2") && error.contains(MODEL),
        "{error}"
    );
}

#[test]
fn a_manifest_of_another_format_or_with_foreign_paths_is_refused() {
    let root = tempdir().unwrap();
    let path = save_step(root.path(), 1, 1).unwrap();
    let file = path.join(MANIFEST);
    let original = Manifest::from_text(&file, &fs::read(&file).unwrap()).unwrap();
    let refused = |manifest: &Manifest| {
        fs::write(&file, manifest.to_text(&file).unwrap()).unwrap();
        Checkpoint::open(&path).unwrap_err().to_string()
    };
    assert!(refused(&Manifest { format: 2, ..original.clone() }).contains("format is 2"));
    let mut foreign = original;
    foreign.checksums.insert("../../secret".into(), "0".repeat(16));
    assert!(refused(&foreign).contains("not in the checkpoint"));
}

#[test]
fn a_failed_write_leaves_the_earlier_checkpoint_and_nothing_else() {
    let root = tempdir().unwrap();
    save_step(root.path(), 1, 2).unwrap();
    let ty = || Type::new(DType::F32, [4]);
    let full = |out: &mut dyn io::Write| {
        out.write_all(&[0; 8])?;
        Err(io::Error::from(io::ErrorKind::StorageFull))
    };
    let fails = |contents| {
        let error = save(&root, manifest(2), contents, 1).unwrap_err().to_string();
        assert!(hidden(&root).is_empty());
        assert_eq!(latest_complete(&root).unwrap().0.manifest.step, 1);
        error
    };
    let error = fails(Contents {
        optimizer: vec![Tensor::streamed("m", ty(), full)],
        ..Contents::default()
    });
    assert!(error.contains("free some space") && error.contains(OPTIMIZER), "{error}");
    for name in [MODEL, MANIFEST, "a/b", ".."] {
        let extra = vec![(name.to_owned(), vec![])];
        assert!(fails(Contents { extra, ..Contents::default() }).contains(name));
    }
    let short = vec![Tensor::new("w", ty(), &[0; 3])];
    assert!(fails(Contents { model: short, ..Contents::default() }).contains("payload has 3"));
}

#[test]
fn an_archive_is_the_folder_in_one_file() {
    let bytes = to_archive(manifest(7), contents(&elements(7))).unwrap();
    assert_eq!(bytes, to_archive(manifest(7), contents(&elements(7))).unwrap());
    let checkpoint = Checkpoint::from_archive("x.tar", bytes.clone()).unwrap();
    let (unpacked, saved) = (tempdir().unwrap(), tempdir().unwrap());
    let unpacked = unpack(&checkpoint, unpacked.path()).unwrap().path;
    let saved = save_step(saved.path(), 7, 1).unwrap();
    for name in [MANIFEST, MODEL, OPTIMIZER, "config.json"] {
        assert_eq!(fs::read(unpacked.join(name)).unwrap(), fs::read(saved.join(name)).unwrap());
    }
    let file = tempdir().unwrap();
    let path = file.path().join("x.tar");
    fs::write(&path, &bytes).unwrap();
    let opened = Checkpoint::open(&path).unwrap();
    assert_eq!(opened.manifest, checkpoint.manifest);
    assert_eq!(opened.extra("config.json").unwrap(), checkpoint.extra("config.json").unwrap());
    assert!(!opened.is_folder() && Checkpoint::open(&saved).unwrap().is_folder());
}

#[test]
fn every_flipped_byte_of_an_archive_is_found_or_means_nothing() {
    let bytes = to_archive(manifest(7), contents(&elements(7))).unwrap();
    let sound = Checkpoint::from_archive("x.tar", bytes.clone()).unwrap();
    for at in 0..bytes.len() {
        let mut damaged = bytes.clone();
        damaged[at] ^= 0x11;
        // The space behind a file's end is nobody's.
        if let Ok(checkpoint) = Checkpoint::from_archive("x.tar", damaged) {
            assert_eq!(checkpoint.manifest, sound.manifest, "byte {at}");
        }
    }
}
