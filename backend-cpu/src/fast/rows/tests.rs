use super::*;
use crate::fast::vmath::Storage;
use crate::isa::Isa;
use half::{bf16, f16};
use tightrope_core::ops::Rope;

/// Uniform in ±size, the same on every run.
fn random<T: Storage>(n: usize, size: f32, seed: u64) -> Vec<T> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let next = || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        T::from_f32(((state >> 40) as f32 / 8_388_608.0 - 1.0) * size)
    };
    std::iter::repeat_with(next).take(n).collect()
}

fn wide<T: Storage>(x: &[T]) -> Vec<f64> {
    x.iter().map(|x| f64::from(x.to_f32())).collect()
}

fn assert_close(what: &str, got: &[f64], want: &[f64], tolerance: f64) {
    assert_eq!(got.len(), want.len(), "{what}");
    let size = want.iter().fold(1e-30, |m: f64, x| m.max(x.abs()));
    for (i, (a, b)) in got.iter().zip(want).enumerate() {
        assert!((a - b).abs() <= tolerance * size, "{what}[{i}] = {a}, not {b}");
    }
}

/// The bits of `f`'s result in pools of 1, 2 and 3 threads must be the same.
fn same_for_all_threads(f: impl Fn() -> Vec<f32> + Sync) {
    let [one, two, three] = [1, 2, 3].map(|threads| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(&f).iter().map(|x| x.to_bits()).collect::<Vec<_>>()
    });
    assert!(one == two && one == three);
}

fn ids(n: usize, limit: usize, seed: u64) -> Vec<i32> {
    random::<f32>(n, 1.0, seed)
        .iter()
        .map(|x| (x.abs() * limit as f32) as i32 % limit as i32)
        .collect()
}

/// Plain loops in f64: loss, lse, dlogits.
fn cross_entropy_reference(
    logits: &[f64],
    targets: &[i32],
    vocab: usize,
    scale: f64,
) -> [Vec<f64>; 3] {
    let padded = logits.len() / targets.len();
    let mut result = [vec![], vec![], vec![]];
    for (row, &target) in logits.chunks(padded).zip(targets) {
        let max = row[..vocab].iter().fold(f64::NEG_INFINITY, |m, &x| m.max(x));
        let sum: f64 = row[..vocab].iter().map(|x| (x - max).exp()).sum();
        result[0].push(if target < 0 { 0.0 } else { max - row[target as usize] + sum.ln() });
        result[1].push(max + sum.ln());
        for (c, x) in row.iter().enumerate() {
            let hot = if c as i32 == target { 1.0 } else { 0.0 };
            let used = c < vocab && target >= 0;
            result[2].push(if used { ((x - max).exp() / sum - hot) * scale } else { 0.0 });
        }
    }
    result
}

fn check_cross_entropy<L: Storage, G: Storage>(
    isa: Isa,
    (rows, vocab, padded): (usize, usize, usize),
    size: f32,
    tolerance: f64,
) {
    // Padding larger than every logit would win if it were read.
    let mut logits = random::<L>(rows * padded, size, 1);
    for row in logits.chunks_mut(padded) {
        row[vocab..].fill(L::from_f32(1e4));
    }
    let mut targets = ids(rows, vocab, 2);
    targets[rows / 2] = -100;
    let scale = 0.37f32;
    let [loss64, lse64, dlogits64] =
        cross_entropy_reference(&wide(&logits), &targets, vocab, f64::from(scale));
    let what = format!("({rows}, {vocab} of {padded}), size {size}");

    let (mut loss, mut lse) = (vec![f32::NAN; rows], vec![f32::NAN; rows]);
    cross_entropy(isa, &logits, &targets, vocab, &mut loss, Some(&mut lse)).unwrap();
    assert_close(&what, &wide(&loss), &loss64, 1e-5);
    assert_close(&what, &wide(&lse), &lse64, 1e-5);

    let mut dlogits = vec![G::from_f32(f32::NAN); rows * padded];
    let again = &mut vec![f32::NAN; rows];
    cross_entropy_grad(
        isa,
        &logits,
        &targets,
        vocab,
        Slope { scale, cap: None },
        again,
        None,
        &mut dlogits,
    )
    .unwrap();
    assert_eq!(again, &loss);
    assert_close(&what, &wide(&dlogits), &dlogits64, tolerance);

    let (mut in_place, mut lse_again) = (logits.clone(), vec![f32::NAN; rows]);
    let lse_slot = Some(&mut lse_again[..]);
    cross_entropy_in_place(isa, &mut in_place, &targets, vocab, scale, again, lse_slot).unwrap();
    assert_eq!((again, lse_again), (&mut loss, lse));
    assert_close(&what, &wide(&in_place), &dlogits64, tolerance);
}

#[test]
fn cross_entropy_agrees_with_plain_loops() {
    for isa in Isa::available() {
        for shape in [(1, 1, 1), (3, 7, 7), (2, 17, 32), (5, 1023, 1024), (3, 1024, 1024)] {
            check_cross_entropy::<f32, f32>(isa, shape, 5.0, 1e-5);
            check_cross_entropy::<f32, f32>(isa, shape, 1e4, 1e-5);
        }
        check_cross_entropy::<f32, bf16>(isa, (3, 2500, 2560), 3.0, 4e-3);
        check_cross_entropy::<bf16, bf16>(isa, (3, 2500, 2560), 3.0, 4e-3);
        check_cross_entropy::<bf16, f32>(isa, (4, 1025, 1026), 3.0, 4e-3);
        check_cross_entropy::<f16, f16>(isa, (4, 31, 64), 3.0, 1e-3);
    }
}

#[test]
fn cross_entropy_in_threads_and_errors() {
    for isa in Isa::available() {
        let (rows, vocab) = (57, 1500);
        let (logits, targets) = (random::<f32>(rows * vocab, 4.0, 3), ids(rows, vocab, 4));
        same_for_all_threads(|| {
            let (mut dlogits, mut loss) = (logits.clone(), vec![0.0; rows]);
            cross_entropy_in_place(isa, &mut dlogits, &targets, vocab, 1.0, &mut loss, None)
                .unwrap();
            dlogits.extend(loss);
            dlogits
        });
        let mut wrong = targets.clone();
        wrong[9] = 1400;
        let (mut dlogits, mut loss) = (logits.clone(), vec![0.0; rows]);
        let error = cross_entropy_in_place(isa, &mut dlogits, &wrong, 1400, 1.0, &mut loss, None)
            .unwrap_err();
        let first = wrong.iter().position(|&id| id >= 1400).unwrap();
        assert_eq!(error, IdError { row: first, id: wrong[first], vocab: 1400 });
        assert!(error.to_string().contains("outside the vocabulary of 1400"));
        assert!(dlogits == logits, "nothing is written on an error");
        cross_entropy::<f32>(isa, &[], &[], 10, &mut [], None).unwrap();
    }
}

fn check_softmax<X: Storage>(isa: Isa, rows: usize, columns: usize, size: f32, tolerance: f64) {
    let (x, dy) = (random::<X>(rows * columns, size, 5), random::<X>(rows * columns, 1.0, 6));
    let garbage = X::from_f32(f32::NAN);
    let (mut y, mut dx) = (vec![garbage; x.len()], vec![garbage; x.len()]);
    softmax(isa, &x, columns, &mut y);
    softmax_backward(isa, &y, &dy, columns, &mut dx);
    let (x64, dy64) = (wide(&x), wide(&dy));
    let (mut y64, mut dx64) = (vec![], vec![]);
    for (x, dy) in x64.chunks(columns).zip(dy64.chunks(columns)) {
        let max = x.iter().fold(f64::NEG_INFINITY, |m, &x| m.max(x));
        let sum: f64 = x.iter().map(|x| (x - max).exp()).sum();
        let p: Vec<f64> = x.iter().map(|x| (x - max).exp() / sum).collect();
        let mean: f64 = p.iter().zip(dy).map(|(p, dy)| p * dy).sum();
        dx64.extend(p.iter().zip(dy).map(|(p, dy)| p * (dy - mean)));
        y64.extend(p);
    }
    assert_close("y", &wide(&y), &y64, tolerance);
    // A row of one column has the gradient 0.
    let dx: Vec<f64> = wide(&dx).iter().map(|x| x + 1.0).collect();
    let dx64: Vec<f64> = dx64.iter().map(|x| x + 1.0).collect();
    assert_close("dx", &dx, &dx64, tolerance);
}

#[test]
fn softmax_agrees_with_plain_loops() {
    for isa in Isa::available() {
        for (rows, columns) in [(1, 1), (3, 5), (7, 16), (2, 1003), (300, 67)] {
            check_softmax::<f32>(isa, rows, columns, 3.0, 1e-5);
            check_softmax::<f32>(isa, rows, columns, 1e4, 1e-5);
            check_softmax::<bf16>(isa, rows, columns, 3.0, 8e-3);
            check_softmax::<f16>(isa, rows, columns, 3.0, 1e-3);
        }
    }
}

#[test]
fn sums_agree_with_plain_loops() {
    for isa in Isa::available() {
        for (rows, columns) in [(1, 1), (2, 300), (17, 3), (1000, 37), (65, 1025)] {
            let x = random::<bf16>(rows * columns, 2.0, 7);
            let x64 = wide(&x);
            let column = |c: usize| x64.iter().skip(c).step_by(columns).sum::<f64>();
            let want: Vec<f64> = (0..columns).map(column).collect();
            let mut scratch = vec![f32::NAN; column_sums_scratch(rows, columns)];
            let mut got = vec![f32::NAN; columns];
            column_sums(isa, &x, &mut got, false, &mut scratch);
            assert_close("column sums", &wide(&got), &want, 1e-5);
            column_sums(isa, &x, &mut got, true, &mut scratch);
            let twice: Vec<f64> = want.iter().map(|x| 2.0 * x).collect();
            assert_close("column sums twice", &wide(&got), &twice, 1e-5);

            let mut got = vec![f32::NAN; rows];
            row_sums(isa, &x, &mut got);
            let want: Vec<f64> = x64.chunks(columns).map(|row| row.iter().sum()).collect();
            assert_close("row sums", &wide(&got), &want, 1e-4);

            let want: Vec<f64> =
                x64.chunks(100).map(|block| block.iter().map(|x| x * x).sum()).collect();
            let mut got = vec![f32::NAN; want.len()];
            block_square_sums(isa, &x, 100, &mut got);
            assert_close("squares of blocks", &wide(&got), &want, 1e-6);
        }
        block_square_sums::<f32>(isa, &[], 100, &mut []);
        let mut kept = [3.0];
        column_sums::<f32>(isa, &[], &mut kept, true, &mut []);
        assert_eq!(kept, [3.0]);
        column_sums::<f32>(isa, &[], &mut kept, false, &mut []);
        assert_eq!(kept, [0.0]);
    }
}

#[test]
fn sums_in_threads() {
    for isa in Isa::available() {
        let x = random::<f32>(700 * 301, 1.0, 8);
        same_for_all_threads(|| {
            let mut sums = vec![0.0; 301];
            column_sums(isa, &x, &mut sums, false, &mut vec![0.0; column_sums_scratch(700, 301)]);
            let mut squares = vec![0.0; x.len().div_ceil(4096)];
            block_square_sums(isa, &x, 4096, &mut squares);
            sums.extend(squares);
            sums
        });
    }
}

#[test]
fn embedding_gathers_and_scatters() {
    for isa in Isa::available() {
        for (vocab, columns, rows) in [(1, 1, 3), (11, 7, 40), (50, 130, 201)] {
            let table = random::<f32>(vocab * columns, 1.0, 9);
            let ids = ids(rows, vocab, 10);
            let mut out = vec![bf16::NAN; rows * columns];
            gather(isa, &table, &ids, columns, &mut out).unwrap();
            for (r, &id) in ids.iter().enumerate() {
                for c in 0..columns {
                    let want = bf16::from_f32(table[id as usize * columns + c]);
                    assert_eq!(out[r * columns + c], want);
                }
            }
            let dy = random::<f16>(rows * columns, 1.0, 11);
            let mut want = wide(&table);
            for (r, &id) in ids.iter().enumerate() {
                for c in 0..columns {
                    want[id as usize * columns + c] += f64::from(dy[r * columns + c].to_f32());
                }
            }
            let mut got = table.clone();
            scatter_add(isa, &dy, &ids, columns, &mut got).unwrap();
            assert_close("dtable", &wide(&got), &want, 1e-5);
            same_for_all_threads(|| {
                let mut dtable = table.clone();
                scatter_add(isa, &dy, &ids, columns, &mut dtable).unwrap();
                dtable
            });
            // Whatever a row adds up, it's rounded once.
            let narrow: Vec<bf16> = table.iter().map(|&x| bf16::from_f32(x)).collect();
            let mut want: Vec<f32> = narrow.iter().map(|x| x.to_f32()).collect();
            scatter_add(isa, &dy, &ids, columns, &mut want).unwrap();
            let want: Vec<f32> = want.into_iter().map(|x| bf16::from_f32(x).to_f32()).collect();
            same_for_all_threads(|| {
                let (mut got, mut order) = (narrow.clone(), vec![0; rows]);
                scatter_add_rounded(isa, &dy, &ids, columns, &mut order, &mut got).unwrap();
                let got: Vec<f32> = got.iter().map(|x| x.to_f32()).collect();
                assert_eq!(got, want);
                got
            });
        }
        let (table, mut out) = (vec![1.0f32; 12], vec![0.0f32; 8]);
        let error = gather(isa, &table, &[2, 3], 4, &mut out).unwrap_err();
        assert_eq!(error, IdError { row: 1, id: 3, vocab: 3 });
        let error = scatter_add(isa, &out, &[-1, 0], 4, &mut table.clone()).unwrap_err();
        assert_eq!(error, IdError { row: 0, id: -1, vocab: 3 });
        assert_eq!(out, [0.0; 8], "nothing is written on an error");
    }
}

fn check_rope<X: Storage>(
    isa: Isa,
    rotary: &Rotary<'_>,
    start: usize,
    batch: usize,
    tolerance: f64,
) {
    let (d, row) = (rotary.op.head_dim, rotary.heads * rotary.op.head_dim);
    let x = random::<X>(batch * rotary.positions * row, 1.0, 12);
    let mut want = wide(&x);
    for (r, row) in want.chunks_mut(row).enumerate() {
        for head in row.chunks_mut(d).take(rotary.op.rotated) {
            for i in 0..d / 2 {
                let frequency = rotary.op.theta.powf(-2.0 * i as f64 / d as f64);
                let angle = (start + r % rotary.positions) as f64 * frequency;
                let (a, b) = (head[i], head[i + d / 2]);
                head[i] = a * angle.cos() - b * angle.sin();
                head[i + d / 2] = b * angle.cos() + a * angle.sin();
            }
        }
    }
    let mut y = vec![X::from_f32(f32::NAN); x.len()];
    let mut scratch = vec![f32::NAN; rope_scratch(d, 2)];
    rope(isa, rotary, &x, &mut y, &mut scratch);
    assert_close("y", &wide(&y), &want, tolerance);
    let mut in_place = x.clone();
    rope_in_place(isa, rotary, &mut in_place, &mut scratch);
    assert!(wide(&in_place) == wide(&y));
    let inverse = Rope { inverse: true, ..rotary.op.clone() };
    let back = Rotary { op: &inverse, ..*rotary };
    rope_in_place(isa, &back, &mut in_place, &mut scratch);
    assert_close("x", &wide(&in_place), &wide(&x), tolerance);
}

#[test]
fn rope_agrees_with_plain_loops() {
    for isa in Isa::available() {
        for (positions, heads, rotated, head_dim, start) in
            [(1, 1, 1, 2, 0), (5, 4, 3, 10, 7), (130, 6, 4, 64, 0), (3, 3, 2, 128, 1000)]
        {
            let op = Rope::new(rotated, head_dim, 10_000.0);
            let rotary = Rotary { positions, heads, places: Places::From(start as i32), op: &op };
            // The angle has the precision of f32: at position 1000 its error reaches 1e-4.
            let tolerance = 2e-7 * (start + positions + 10) as f64;
            check_rope::<f32>(isa, &rotary, start, 2, tolerance);
            check_rope::<bf16>(isa, &rotary, start, 2, 1e-2);
            check_rope::<f16>(isa, &rotary, start, 2, 2e-3);
        }
    }
}
