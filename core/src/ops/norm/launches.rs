//! Launches of a norm and of its gradient, over windows of rows.

use std::ops::Range;

use crate::dialect::Dialect;
use crate::launch::{Launch, Launches, Limits, Place};
use crate::ops::Map;
use crate::ops::reduce::{QUAD, Strips, THREADS, lanes, sum_columns};
use crate::ops::windows::{part, windows_with_vectors};
use crate::types::{DType, Type};

/// What a norm's launches read. What an op lacks is another of its tensors, which takes no further binding.
pub(super) struct Operands {
    /// (R, C), bound a window at a time.
    pub x: Place,
    pub dy: Place,
    /// (C).
    pub w: Place,
    pub b: Place,
    /// (R).
    pub mean: Place,
    pub rstd: Place,
    /// (R, C). What is added to dx.
    pub residual: Option<Place>,
    /// Where the weights' gradients go, of an entry that makes all.
    pub all: Option<OfWeights>,
}

/// Sums over strips of rows, and what they are added up to, in so many parts.
pub(super) struct OfWeights {
    sums: Place,
    parts: u64,
    /// (C).
    dw: Place,
    db: Place,
}

/// Rows of C elements and the windows in which they are bound.
pub(super) struct Rows<'a> {
    limits: &'a Limits,
    columns: u64,
    windows: Vec<Range<u64>>,
}

impl<'a> Rows<'a> {
    pub fn new(limits: &'a Limits, x: &Type) -> Self {
        let (all, columns) = (x.rows() as u64, x.last() as u64);
        // Rows of 16 bits that share words are written as f32.
        let widest = if columns.is_multiple_of(2) { x.dtype } else { DType::F32 };
        let windows = windows_with_vectors(
            limits,
            all,
            &[(x.dtype, columns), (widest, columns)],
            &[(x.dtype.statistics(), 1)],
        );
        Self { limits, columns, windows }
    }

    fn aligned(&self) -> bool {
        self.columns.is_multiple_of(QUAD)
    }

    fn elements(&self, rows: &Range<u64>) -> Range<u64> {
        rows.start * self.columns..rows.end * self.columns
    }

    /// Binds what a launch over the rows `window` reads.
    fn bind(&self, launch: Launch, window: &Range<u64>, operands: &Operands, out: Place) -> Launch {
        let rows = |place: Place| place.window(self.elements(window));
        let (mean, first_row) = part(self.limits, operands.mean, window.clone());
        let (rstd, _) = part(self.limits, operands.rstd, window.clone());
        let launch = launch
            .bind_four("x", rows(operands.x), self.aligned())
            .bind_four("dy", rows(operands.dy), self.aligned())
            .bind_four("w", operands.w, self.aligned())
            .bind_four("b", operands.b, self.aligned())
            .bind("mean", mean)
            .bind("rstd", rstd)
            .bind_four("out", out, self.aligned())
            .param("rows", window.end - window.start)
            .param("first_row", first_row);
        let residual = rows(operands.residual.unwrap_or(operands.x));
        let unused = OfWeights { sums: rstd, parts: UNUSED.into(), dw: out, db: out };
        let &OfWeights { sums, parts, dw, db } = operands.all.as_ref().unwrap_or(&unused);
        let launch = match self.limits.dialect() {
            Dialect::Wgsl => launch,
            Dialect::Cuda => launch
                .constant("RESIDUAL", operands.residual.is_some())
                .constant("PARTS", parts)
                .bind_four("residual", residual, self.aligned())
                .bind_four("sums", sums, self.aligned())
                .bind_four("dw", dw, self.aligned())
                .bind_four("db", db, self.aligned()),
        };
        launch.costing(FLOPS * (window.end - window.start) * self.columns)
    }

    /// Appends launches of threads that own rows and write those of `out`.
    pub fn push(
        &self,
        launches: &mut Launches,
        entry: &'static str,
        eps: f64,
        operands: &Operands,
        out: Place,
    ) {
        let workgroup = THREADS.min(self.limits.workgroup);
        let lanes = lanes(self.columns, workgroup);
        launches.by_rows(self.limits, out, self.columns, false, |launches, out| {
            for window in &self.windows {
                let groups = ((window.end - window.start) * lanes).div_ceil(workgroup.into());
                let launch = Launch::new("norm", entry, workgroup, groups)
                    .constant("COLUMNS", self.columns)
                    .constant("LANES", lanes)
                    .constant("SUBGROUP", self.limits.webgpu().subgroup_threads())
                    .constant("QUADS", UNUSED)
                    .param("strip", UNUSED)
                    .param("first_bias", UNUSED)
                    .real("eps", eps);
                let out = out.window(self.elements(window));
                launches.push(self.bind(launch, window, operands, out));
            }
        });
    }

    /// Appends launches that leave the gradient of x in `dx`, with what is added to it.
    fn push_gradient(
        &self,
        launches: &mut Launches,
        entry: &'static str,
        operands: &Operands,
        dx: Place,
    ) {
        if self.limits.cuda().epilogues {
            return self.push(launches, entry, 0.0, operands, dx);
        }
        self.push(launches, entry, 0.0, &Operands { residual: None, all: None, ..*operands }, dx);
        if operands.residual.is_some() {
            let sum = Map::add(dx.dtype);
            sum.push_elementwise(self.limits, launches, dx, operands.residual, dx);
        }
    }

    /// Appends launches that sum over rows into `dw` and, where a norm has one, `db`.
    fn push_weights(
        &self,
        launches: &mut Launches,
        entry: &'static str,
        operands: &Operands,
        (dw, db): (Place, Option<Place>),
    ) {
        for window in &self.windows {
            let partials = self.partials(launches, window, dw, db);
            let strips = &partials.strips;
            let launch = self.of_strips(strips.launch("norm", entry), &partials);
            launches.push(self.bind(launch, window, operands, partials.place));
            self.push_sums(launches, &partials, (dw, db), window.start > 0);
        }
    }

    /// Appends launches that leave the gradients of x and of the weights: from one reading of what they're made of, where a warp's
    /// registers hold the weights' sums.
    pub fn push_gradients(
        &self,
        launches: &mut Launches,
        entries: &Entries,
        operands: &Operands,
        dx: Place,
        weights: Option<(Place, Option<Place>)>,
    ) {
        let Some((dw, db)) = weights else {
            return self.push_gradient(launches, entries.rows, operands, dx);
        };
        let together = self.limits.cuda().epilogues
            && STRIP_THREADS <= self.limits.workgroup
            && self.columns <= MOST_TOGETHER;
        let ([window], true) = (&self.windows[..], together) else {
            // First, since dx may overwrite dy.
            self.push_weights(launches, entries.weights, operands, (dw, db));
            return self.push_gradient(launches, entries.rows, operands, dx);
        };
        let partials = self.partials(launches, window, dw, db);
        // Sums of strips are added up as a launch over them would.
        let parts = Strips::of(partials.strips.count, self.columns, self.limits).parts();
        let all = Some(OfWeights { sums: partials.place, parts, dw, db: db.unwrap_or(dw) });
        let launch = Launch::new("norm", entries.both, STRIP_THREADS, partials.strips.count);
        let launch = self.of_strips(launch.constant("QUADS", UNUSED), &partials);
        launches.push(self.bind(launch, window, &Operands { all, ..*operands }, dx));
    }

    /// Room for the sums over strips of a window of rows.
    fn partials(
        &self,
        launches: &mut Launches,
        window: &Range<u64>,
        dw: Place,
        db: Option<Place>,
    ) -> Partials {
        let strips = Strips::of(window.end - window.start, self.columns, self.limits);
        let elements = strips.count * self.columns;
        let padded = elements.next_multiple_of(dw.granule());
        let place = launches.scratch(DType::F32, padded * (1 + u64::from(db.is_some())));
        Partials { strips, place, elements, padded }
    }

    /// What a launch over strips is told.
    fn of_strips(&self, launch: Launch, partials: &Partials) -> Launch {
        launch
            .constant("COLUMNS", self.columns)
            .constant("LANES", UNUSED)
            .constant("SUBGROUP", UNUSED)
            .param("strip", partials.strips.rows)
            .param("first_bias", partials.padded)
            .real("eps", 0.0)
    }

    /// Appends launches that add up the sums over strips, those of both weights at once.
    fn push_sums(
        &self,
        launches: &mut Launches,
        partials: &Partials,
        (dw, db): (Place, Option<Place>),
        add: bool,
    ) {
        let Partials { strips, place, elements, padded } = partials;
        let outputs = [Some(dw), db].into_iter().flatten();
        let of = |(first, out): (u64, Place)| {
            let matrix = (place.window(first..first + elements), strips.count, self.columns);
            let mut own = Launches { list: vec![], scratch_bytes: launches.scratch_bytes };
            sum_columns(self.limits, &mut own, matrix, 1.0, out, add);
            launches.scratch_bytes = own.scratch_bytes;
            own.list
        };
        let lists = (0..).step_by(*padded as usize).zip(outputs).map(of).collect();
        launches.push_concurrent(lists);
    }
}

/// Sums over strips of rows, one after the other, and from `padded` on those of the bias.
struct Partials {
    strips: Strips,
    place: Place,
    elements: u64,
    padded: u64,
}

/// Entries of a norm's gradient: of x, of the weights, and of all.
pub(super) struct Entries {
    pub rows: &'static str,
    pub weights: &'static str,
    pub both: &'static str,
}

/// Threads of a workgroup that makes all gradients of a strip, a warp for each of its rows in turn; and the most columns, of which the
/// warp's registers hold sums.
const STRIP_THREADS: u32 = 512;
const MOST_TOGETHER: u64 = 1024;

/// Arithmetic of an element in one launch, about.
const FLOPS: u64 = 8;

/// A constant that only the kernel file's other entries read.
const UNUSED: u32 = 1;
