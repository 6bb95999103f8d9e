//! Every path this CPU can run, against a triple loop in f64.

use half::{bf16, f16};

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use super::schedule::share;
use super::*;

const ELEMENTS: [Element; 3] = [Element::F32, Element::Bf16, Element::F16];

/// Numbers in [-1, 1), the same for the same seed.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> f32 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 40) as f32 / (1 << 23) as f32 - 1.0
    }
}

fn encode(value: f32, element: Element) -> Vec<u8> {
    match element {
        Element::F32 => value.to_ne_bytes().to_vec(),
        Element::Bf16 => bf16::from_f32(value).to_ne_bytes().to_vec(),
        Element::F16 => f16::from_f32(value).to_ne_bytes().to_vec(),
    }
}

fn decode(bytes: &[u8], at: isize, element: Element) -> f64 {
    let from = at as usize * element.size();
    let bits = &bytes[from..from + element.size()];
    f64::from(match element {
        Element::F32 => f32::from_ne_bytes([bits[0], bits[1], bits[2], bits[3]]),
        Element::Bf16 => bf16::from_ne_bytes([bits[0], bits[1]]).to_f32(),
        Element::F16 => f16::from_ne_bytes([bits[0], bits[1]]).to_f32(),
    })
}

/// Where a matrix's elements lie.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Order {
    Rows,
    Columns,
    /// Neither stride is 1.
    Sparse,
}

/// A matrix that owns its bytes, with unused elements (NaN) between its rows.
#[derive(Clone)]
struct Owned {
    bytes: Vec<u8>,
    element: Element,
    row_stride: isize,
    col_stride: isize,
}

impl Owned {
    fn new(rows: usize, columns: usize, order: Order, element: Element, seed: u64) -> Self {
        let (row_stride, col_stride) = match order {
            Order::Rows => (columns as isize + 3, 1),
            Order::Columns => (1, rows as isize + 1),
            Order::Sparse => (2 * columns as isize + 1, 2),
        };
        let len = (rows + 2) * (columns + 3) * 2;
        let mut bytes = encode(f32::NAN, element).repeat(len);
        let mut numbers = Numbers(seed);
        for i in 0..rows {
            for j in 0..columns {
                let at = (i as isize * row_stride + j as isize * col_stride) as usize;
                let size = element.size();
                bytes[at * size..(at + 1) * size].copy_from_slice(&encode(numbers.next(), element));
            }
        }
        Self { bytes, element, row_stride, col_stride }
    }

    fn get(&self, i: usize, j: usize) -> f64 {
        let at = i as isize * self.row_stride + j as isize * self.col_stride;
        decode(&self.bytes, at, self.element)
    }

    fn mat(&self) -> Mat {
        let &Self { ref bytes, element, row_stride, col_stride } = self;
        Mat { ptr: bytes.as_ptr(), element, row_stride, col_stride }
    }

    fn mat_mut(&mut self) -> MatMut {
        let Self { bytes, element, row_stride, col_stride } = self;
        MatMut {
            ptr: bytes.as_mut_ptr(),
            element: *element,
            row_stride: *row_stride,
            col_stride: *col_stride,
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Case {
    shape: (usize, usize, usize),
    orders: [Order; 3],
    elements: [Element; 3],
    accumulate: bool,
    bias: Option<Element>,
    scale: f32,
    threads: usize,
}

impl Case {
    fn plain(shape: (usize, usize, usize)) -> Self {
        Self {
            shape,
            orders: [Order::Rows; 3],
            elements: [Element::F32; 3],
            accumulate: false,
            bias: None,
            scale: 1.0,
            threads: 1,
        }
    }

    /// The output's bytes before and after, with the operands.
    fn run(&self, path: Path) -> Run {
        let (m, n, k) = self.shape;
        let lhs = Owned::new(m, k, self.orders[0], self.elements[0], 1);
        let rhs = Owned::new(k, n, self.orders[1], self.elements[1], 2);
        let before = Owned::new(m, n, self.orders[2], self.elements[2], 3);
        let bias = self.bias.map(|element| Owned::new(1, n, Order::Rows, element, 4));
        let mut after = before.clone();
        let matmul = Gemm {
            m,
            n,
            k,
            lhs: lhs.mat(),
            rhs: rhs.mat(),
            out: after.mat_mut(),
            accumulate: self.accumulate,
            bias: bias.as_ref().map(|b| Bias { ptr: b.bytes.as_ptr(), element: b.element }),
            scale: self.scale,
        };
        // One byte off, so that alignment is `gemm`'s own work; NaNs, so that nothing is taken for granted.
        let mut scratch = vec![0xff; path.scratch_bytes(m, n, k, self.threads) + 1];
        // SAFETY: the matrices own all that their views reach, and overlap nothing.
        unsafe { path.run(&matmul, self.threads, &mut scratch[1..]) }.expect("enough scratch");
        Run { lhs, rhs, bias, before, after }
    }

    /// Runs on `paths` and compares with f64; also that nothing is written between the output's elements.
    fn check(&self, paths: &[Path]) {
        let (m, n, k) = self.shape;
        let runs: Vec<Run> = paths.iter().map(|&path| self.run(path)).collect();
        let Run { lhs, rhs, bias, before, .. } = &runs[0];
        let lhs: Vec<f64> = (0..m * k).map(|at| lhs.get(at / k, at % k)).collect();
        let rhs_t: Vec<f64> = (0..n * k).map(|at| rhs.get(at % k, at / k)).collect();
        let round = match self.elements[2] {
            Element::F32 => 0.0,
            Element::Bf16 => 2f64.powi(-8),
            Element::F16 => 2f64.powi(-10),
        };
        let mut written: Vec<Vec<u8>> = vec![before.bytes.clone(); runs.len()];
        for i in 0..m {
            for j in 0..n {
                let terms = lhs[i * k..(i + 1) * k].iter().zip(&rhs_t[j * k..(j + 1) * k]);
                let (sum, size) = terms
                    .map(|(a, b)| a * b)
                    .fold((0.0, 0.0), |(sum, size), t: f64| (sum + t, size + t.abs()));
                let bias = bias.as_ref().map_or(0.0, |b| b.get(0, j));
                let old = if self.accumulate { before.get(i, j) } else { 0.0 };
                let scale = f64::from(self.scale);
                let expected = scale * sum + bias + old;
                let size = (scale * size).abs() + bias.abs() + old.abs();
                let allowed =
                    4e-7 * size * (k as f64).sqrt().max(1.0) + round * expected.abs() + 1e-7;
                for ((run, path), written) in runs.iter().zip(paths).zip(&mut written) {
                    let got = run.after.get(i, j);
                    // Not `>`: a NaN must fail.
                    let close = (got - expected).abs() <= allowed;
                    assert!(close, "{} {self:?}: ({i}, {j}) is {got}, not {expected}", path.name());
                    let at = i as isize * before.row_stride + j as isize * before.col_stride;
                    let bytes = self.elements[2].size();
                    let span = at as usize * bytes..(at as usize + 1) * bytes;
                    written[span.clone()].copy_from_slice(&run.after.bytes[span]);
                }
            }
        }
        for ((run, path), written) in runs.iter().zip(paths).zip(&written) {
            assert!(*written == run.after.bytes, "{} {self:?}: wrote outside", path.name());
        }
    }
}

struct Run {
    lhs: Owned,
    rhs: Owned,
    bias: Option<Owned>,
    before: Owned,
    after: Owned,
}

/// All paths that this CPU can run for the case's operands.
fn paths(case: &Case) -> Vec<Path> {
    let [lhs, rhs, _] = case.elements;
    Isa::available().map(|isa| Path::of(isa.level(), lhs, rhs)).collect()
}

/// Bytes of scratch of a matmul of these sizes, all of one type.
fn scratch(isa: Isa, (m, n, k): (usize, usize, usize), of: Element, threads: usize) -> usize {
    scratch_bytes(isa.level(), Sizes { m, n, k }, of, of, threads)
}

fn check(case: Case) {
    case.check(&paths(&case));
}

#[test]
fn every_small_shape() {
    for elements in [[Element::F32; 3], [Element::Bf16; 3]] {
        for m in [1, 2, 4, 5, 7, 8, 9, 17, 33] {
            for n in [1, 7, 8, 15, 16, 17, 24, 31, 33, 47, 48, 49, 97] {
                for k in [0, 1, 2, 3, 7, 8, 15, 16, 17, 33] {
                    check(Case { elements, ..Case::plain((m, n, k)) });
                }
            }
        }
    }
}

#[test]
fn empty_matmuls() {
    for shape in [(0, 5, 5), (5, 0, 5), (0, 0, 0)] {
        check(Case::plain(shape));
    }
    // k = 0 still scales, adds and accumulates.
    check(Case { accumulate: true, bias: Some(Element::F32), ..Case::plain((3, 50, 0)) });
}

#[test]
fn every_order_and_element() {
    let all = [Order::Rows, Order::Columns, Order::Sparse];
    for lhs in all {
        for rhs in all {
            for out in all {
                for a in ELEMENTS {
                    for b in ELEMENTS {
                        for c in ELEMENTS {
                            check(Case {
                                orders: [lhs, rhs, out],
                                elements: [a, b, c],
                                ..Case::plain((13, 61, 37))
                            });
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn several_blocks_and_slices() {
    // Beyond one slice of depth for f32 and bf16 lanes alike, and beyond one block each way.
    for elements in
        [[Element::F32; 3], [Element::Bf16; 3], [Element::Bf16, Element::Bf16, Element::F32]]
    {
        for orders in [
            [Order::Rows, Order::Rows, Order::Rows],
            [Order::Rows, Order::Columns, Order::Rows],
            [Order::Columns, Order::Rows, Order::Rows],
        ] {
            for threads in [1, 3] {
                for shape in [(797, 53, 401), (23, 809, 801), (389, 397, 33)] {
                    check(Case { orders, elements, threads, ..Case::plain(shape) });
                }
            }
        }
    }
}

#[test]
fn accumulate_bias_and_scale() {
    for out in ELEMENTS {
        for operands in ELEMENTS {
            for bias in [None, Some(Element::F32), Some(Element::Bf16), Some(Element::F16)] {
                for accumulate in [false, true] {
                    for shape in [(19, 83, 29), (9, 50, 1700)] {
                        let elements = [operands, operands, out];
                        let plain = Case::plain(shape);
                        check(Case { elements, accumulate, bias, scale: -0.375, ..plain });
                    }
                }
            }
        }
    }
}

#[test]
fn bits_do_not_depend_on_threads() {
    for elements in
        [[Element::F32; 3], [Element::Bf16; 3], [Element::F16, Element::F32, Element::Bf16]]
    {
        for shape in [(1, 1000, 900), (211, 401, 1203), (1031, 17, 64), (500, 500, 385)] {
            for accumulate in [false, true] {
                let bias = Some(Element::Bf16);
                let case = Case { elements, accumulate, bias, scale: 0.3, ..Case::plain(shape) };
                for path in paths(&case) {
                    let one = case.run(path).after.bytes;
                    for threads in [2, 3, 5, 8] {
                        let many = Case { threads, ..case }.run(path).after.bytes;
                        assert!(one == many, "{} {case:?}: {threads} threads differ", path.name());
                    }
                }
            }
        }
    }
}

#[test]
fn rows_read_where_they_are_have_the_bits_of_packed_ones() {
    for operands in [Element::F32, Element::Bf16] {
        for shape in [(19, 83, 30), (24, 50, 1701), (211, 401, 1202), (40, 48, 2045)] {
            let elements = [operands, operands, Element::F32];
            let case = Case { elements, threads: 2, ..Case::plain(shape) };
            let orders = [Order::Sparse, Order::Rows, Order::Rows];
            for path in paths(&case) {
                let in_place = case.run(path).after.bytes;
                let packed = Case { orders, ..case }.run(path).after.bytes;
                assert!(in_place == packed, "{} {case:?}", path.name());
            }
        }
    }
}

#[test]
fn runs_inside_a_rayon_task() {
    use rayon::prelude::*;
    let pool = rayon::ThreadPoolBuilder::new().num_threads(2).build().expect("a pool");
    pool.install(|| {
        (0..16).into_par_iter().for_each(|i| {
            check(Case { threads: 1 + i % 4, ..Case::plain((40, 40, 40)) });
        });
    });
}

#[test]
fn negative_strides() {
    let (m, n, k) = (11, 50, 21);
    let lhs = Owned::new(m, k, Order::Rows, Element::F32, 1);
    let rhs = Owned::new(k, n, Order::Rows, Element::F32, 2);
    for path in paths(&Case::plain((m, n, k))) {
        let mut out = vec![0f32; m * n];
        let (l, size) = (lhs.mat(), 4);
        let last_row = (m as isize - 1) * l.row_stride * size;
        let matmul = Gemm {
            m,
            n,
            k,
            lhs: Mat { ptr: l.ptr.wrapping_offset(last_row), row_stride: -l.row_stride, ..l },
            rhs: rhs.mat(),
            out: MatMut::rows(out.as_mut_ptr().cast(), Element::F32, n),
            accumulate: false,
            bias: None,
            scale: 1.0,
        };
        let mut scratch = vec![0; path.scratch_bytes(m, n, k, 1)];
        // SAFETY: the views stay inside the matrices, whose rows lhs visits from the last to the first.
        unsafe { path.run(&matmul, 1, &mut scratch) }.expect("enough scratch");
        for i in 0..m {
            for j in 0..n {
                let expected: f64 = (0..k).map(|p| lhs.get(m - 1 - i, p) * rhs.get(p, j)).sum();
                assert!((f64::from(out[i * n + j]) - expected).abs() < 1e-5, "{}", path.name());
            }
        }
    }
}

#[test]
fn special_values_survive_rounding() {
    // 1 × 1 products of value · 1, through the eight-wide path (n = 8) and the plain one (n = 1).
    let ties = [257.0 / 256.0, 259.0 / 256.0];
    let limits = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, f32::MAX, -0.0, 3e-39];
    let values: Vec<f32> = ties.into_iter().chain(limits).collect();
    let isas: Vec<Isa> = Isa::available().collect();
    for (isa, out) in isas.iter().flat_map(|&isa| ELEMENTS.map(|out| (isa, out))) {
        for &value in &values {
            // The `gemm` crate keeps the sign of -0 where it computes no vector.
            if isa == Isa::PORTABLE && value == 0.0 {
                continue;
            }
            let bits = [8, 1].map(|n: usize| {
                let rhs = vec![1f32; n];
                let mut got = vec![0u8; n * out.size()];
                let matmul = Gemm {
                    m: 1,
                    n,
                    k: 1,
                    lhs: Mat::rows((&raw const value).cast(), Element::F32, 1),
                    rhs: Mat::rows(rhs.as_ptr().cast(), Element::F32, n),
                    out: MatMut::rows(got.as_mut_ptr(), out, n),
                    accumulate: false,
                    bias: None,
                    scale: 1.0,
                };
                let needed = scratch(isa, (1, n, 1), Element::F32, 1);
                // SAFETY: the matrices are whole slices that overlap nothing.
                unsafe { gemm(isa, &matmul, 1, &mut vec![0; needed]) }.expect("enough scratch");
                got[..out.size()].to_vec()
            });
            assert_eq!(bits[0], bits[1], "{value} as {out:?} depends on the width");
            // A sum that starts at +0 loses the sign of -0.
            let expected = encode(value + 0.0, out);
            assert_eq!(bits[0], expected, "{value} as {out:?}");
        }
    }
}

#[test]
fn short_scratch_is_refused() {
    let mut out = [7f32; 4];
    let ones = [1f32; 4];
    let view = Mat::rows(ones.as_ptr().cast(), Element::F32, 2);
    let matmul = Gemm {
        m: 2,
        n: 2,
        k: 2,
        lhs: view,
        rhs: view,
        out: MatMut::rows(out.as_mut_ptr().cast(), Element::F32, 2),
        accumulate: false,
        bias: None,
        scale: 1.0,
    };
    let isa = Isa::detect();
    let needed = scratch(isa, (2, 2, 2), Element::F32, 1);
    // SAFETY: the matrices are whole arrays that overlap nothing.
    let refused = unsafe { gemm(isa, &matmul, 1, &mut vec![0; needed - 1]) };
    let expected = GemmError::Scratch { m: 2, n: 2, k: 2, threads: 1, needed, given: needed - 1 };
    assert_eq!(refused, Err(expected));
    assert_eq!(out, [7.0; 4]);
}

#[test]
fn scratch_stays_small() {
    for (level, element) in Level::ALL.into_iter().flat_map(|level| ELEMENTS.map(|of| (level, of)))
    {
        // The logits of GPT-2: a whole f32 copy of the weight alone would be 77 MB.
        for (m, n, k) in [(4096, 50304, 384), (4096, 384, 50304), (50304, 384, 4096)] {
            for threads in [1, 2, 16] {
                let bytes = scratch_bytes(level, Sizes { m, n, k }, element, element, threads);
                let what = format!("{level:?}, {element:?}, {threads} threads");
                assert!(bytes <= threads * (4 << 20), "{bytes} bytes for {what}");
            }
        }
        let tile = scratch_bytes(level, Sizes { m: 64, n: 64, k: 64 }, element, element, 1);
        assert!(tile <= 64 << 10, "{tile} bytes for a 64 × 64 × 64 tile on {level:?}");
    }
}

#[test]
fn each_task_is_handed_out_once() {
    for (workers, tasks) in [(1, 5), (2, 1), (2, 7), (3, 7), (5, 3), (4, 0)] {
        let taken: Vec<AtomicUsize> = (0..tasks).map(|_| AtomicUsize::new(0)).collect();
        share(workers, tasks, |_, next| {
            while let Some(task) = next() {
                taken[task].fetch_add(1, Ordering::Relaxed);
            }
        });
        let taken: Vec<usize> = taken.into_iter().map(AtomicUsize::into_inner).collect();
        assert_eq!(taken, vec![1; tasks], "{workers} workers");
    }
}

/// A kernel whose sums don't stay in registers reaches less than half of the peak.
#[cfg(target_arch = "x86_64")]
#[test]
fn a_matmul_by_avx2_reaches_most_of_its_peak() {
    const LEAST: f64 = 0.6;
    let Ok(isa) = Isa::named("avx2") else { return };
    let (m, n, k) = (256, 384, 384);
    let numbers = |rows, columns| Owned::new(rows, columns, Order::Rows, Element::F32, 1);
    let (lhs, rhs, mut out) = (numbers(m, k), numbers(k, n), numbers(m, n));
    let (lhs, rhs, out) = (lhs.mat(), rhs.mat(), out.mat_mut());
    let matmul = Gemm { m, n, k, lhs, rhs, out, accumulate: false, bias: None, scale: 1.0 };
    let path = Path::of(isa.level(), Element::F32, Element::F32);
    let mut scratch = vec![0; path.scratch_bytes(m, n, k, 1)];
    let mut seconds = || {
        let start = Instant::now();
        // SAFETY: the matrices own all that their views reach, and overlap nothing.
        unsafe { path.run(&matmul, 1, &mut scratch) }.expect("enough scratch");
        start.elapsed().as_secs_f64()
    };
    let mut share = || {
        let fastest = (0..10).map(|_| seconds()).fold(f64::INFINITY, f64::min);
        2.0 * (m * n * k) as f64 / fastest / crate::peak::flops_of_avx2().expect("AVX2")
    };
    // Others use the machine too: one try is enough.
    let shares: Vec<f64> = (0..10).map(|_| share()).collect();
    assert!(shares.iter().any(|&share| share > LEAST), "{shares:?} of the peak");
}
