//! The one allocation: an arena of the plan's size, zeroed, and typed views of its ranges.

use std::alloc::{Layout, alloc, dealloc};
use std::cell::Cell;
use std::ptr::NonNull;

use tightrope_core::Type;

/// Alignment of the arena and of every range in it: a page-friendly multiple of the widest vector.
pub const ALIGNMENT: u64 = 256;

/// Bytes of a huge page on x86-64, and on AArch64 with pages of 4 KiB.
const HUGE: usize = 2 << 20;

/// Zeroed, aligned bytes.
pub struct Arena {
    start: NonNull<u8>,
    layout: Layout,
}

// SAFETY: the arena owns its bytes; whoever holds a reference to it may go to another thread.
unsafe impl Send for Arena {}
// SAFETY: as above; views are made under the contracts of their methods.
unsafe impl Sync for Arena {}

impl Arena {
    /// Allocates `bytes` of zeros; `None` where the system refuses. All are written, so that what isn't there is missing
    /// now and not in a later step.
    pub fn new(bytes: u64) -> Option<Self> {
        let size = usize::try_from(bytes.max(ALIGNMENT)).ok()?;
        let huge = cfg!(target_os = "linux") && size >= HUGE;
        let align = if huge { HUGE } else { ALIGNMENT as usize };
        let layout = Layout::from_size_align(size, align).ok()?;
        // SAFETY: the size isn't 0.
        let start = NonNull::new(unsafe { alloc(layout) })?;
        ask_for_huge_pages(start, size);
        // SAFETY: all bytes of the allocation.
        unsafe { start.write_bytes(0, size) };
        Some(Self { start, layout })
    }

    /// Bytes allocated.
    pub fn bytes(&self) -> u64 {
        self.layout.size() as u64
    }

    /// A view of the bytes of one tensor.
    ///
    /// # Panics
    /// Where the range is outside the arena or its start is misaligned: the plan is wrong.
    pub fn view<'a>(&'a self, offset: u64, ty: &'a Type) -> View<'a> {
        View { ty, ..self.bytes_at(offset, ty.bytes() as u64, ty) }
    }

    fn bytes_at<'a>(&'a self, offset: u64, bytes: u64, ty: &'a Type) -> View<'a> {
        assert!(offset + bytes <= self.bytes(), "{ty} at {offset} is outside the arena");
        assert!(offset.is_multiple_of(ALIGNMENT), "{ty} at {offset} is misaligned");
        // SAFETY: within the allocation.
        let start = unsafe { self.start.add(offset as usize) };
        View { start, ty, arena: std::marker::PhantomData }
    }

    /// Scratch as bytes.
    ///
    /// # Safety
    /// No view of the same range is read or written while this lives.
    ///
    /// # Panics
    /// As [`Arena::view`].
    #[expect(clippy::mut_from_ref, reason = "ranges of the arena are handed out apart")]
    pub unsafe fn scratch(&self, offset: u64, bytes: u64) -> &mut [u8] {
        assert!(offset + bytes <= self.bytes(), "scratch at {offset} is outside the arena");
        // SAFETY: within the allocation, initialised; the caller keeps other users out.
        unsafe {
            std::slice::from_raw_parts_mut(self.start.add(offset as usize).as_ptr(), bytes as usize)
        }
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout.
        unsafe { dealloc(self.start.as_ptr(), self.layout) };
    }
}

/// A step goes through all of the arena, and a matmul reads rows that are kilobytes apart: with pages of 4 KiB, the
/// processor looks up more of them than it keeps. A hint, of whole huge pages alone: the last would be given whole.
#[cfg(target_os = "linux")]
fn ask_for_huge_pages(start: NonNull<u8>, size: usize) {
    if size >= HUGE {
        // SAFETY: whole pages of an allocation that is aligned to them; what is in them stays.
        unsafe { libc::madvise(start.as_ptr().cast(), size / HUGE * HUGE, libc::MADV_HUGEPAGE) };
    }
}

#[cfg(not(target_os = "linux"))]
fn ask_for_huge_pages(_: NonNull<u8>, _: usize) {}

/// The bytes of one tensor. In-place ops have two views of one range.
#[derive(Clone, Copy)]
pub struct View<'a> {
    start: NonNull<u8>,
    ty: &'a Type,
    arena: std::marker::PhantomData<&'a Arena>,
}

// SAFETY: a view is an address and a length; its methods carry the contracts.
unsafe impl Send for View<'_> {}
// SAFETY: as above.
unsafe impl Sync for View<'_> {}

impl<'a> View<'a> {
    /// Dtype and shape.
    pub fn ty(&self) -> &'a Type {
        self.ty
    }

    /// Address of the first byte.
    pub fn ptr(&self) -> *mut u8 {
        self.start.as_ptr()
    }

    /// Whether both start at one address: an in-place op.
    pub fn same_place(&self, other: &Self) -> bool {
        self.start == other.start
    }

    /// The elements, where `T` has the size of the dtype.
    ///
    /// # Safety
    /// Nothing writes the range while this lives.
    ///
    /// # Panics
    /// Where the size of `T` is another.
    pub unsafe fn slice<T: bytemuck::Pod>(&self) -> &'a [T] {
        assert_eq!(size_of::<T>(), self.ty.dtype.size(), "{} read as another type", self.ty);
        // SAFETY: in the arena by construction, aligned to 256, any bits are a `T`; the caller keeps
        // writers out.
        unsafe { std::slice::from_raw_parts(self.ptr().cast(), self.ty.elements()) }
    }

    /// The elements, to write.
    ///
    /// # Safety
    /// Nothing else reads or writes the range while this lives.
    ///
    /// # Panics
    /// As [`View::slice`].
    pub unsafe fn slice_mut<T: bytemuck::Pod>(&self) -> &'a mut [T] {
        assert_eq!(size_of::<T>(), self.ty.dtype.size(), "{} written as another type", self.ty);
        // SAFETY: as in `slice`; the caller keeps everyone else out.
        unsafe { std::slice::from_raw_parts_mut(self.ptr().cast(), self.ty.elements()) }
    }

    /// The bytes as cells, which may be shared by the views of an in-place op.
    ///
    /// # Safety
    /// Only cells of this thread read or write the range while this lives.
    pub unsafe fn cells(&self) -> &'a [Cell<u8>] {
        // SAFETY: in the arena by construction; a cell has the layout of its byte, and the caller keeps
        // other threads and references out.
        unsafe { std::slice::from_raw_parts(self.ptr().cast(), self.ty.bytes()) }
    }
}
