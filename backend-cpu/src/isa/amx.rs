//! Detection of AMX, which the system has to permit.

use std::arch::x86_64::__cpuid_count;
use std::sync::OnceLock;

/// Returns `true` if the processor has tiles of bf16 and the system lets this process use them.
pub(crate) fn usable() -> bool {
    static USABLE: OnceLock<bool> = OnceLock::new();
    *USABLE.get_or_init(|| in_processor() && permitted())
}

/// Bits 22 (AMX-BF16) and 24 (AMX-TILE) of leaf 7's EDX.
fn in_processor() -> bool {
    let (bf16, tile) = (1 << 22, 1 << 24);
    is_x86_feature_detected!("avx512f") && __cpuid_count(7, 0).edx & (bf16 | tile) == bf16 | tile
}

/// Asks for the state of tiles, which Linux gives to those that ask: 8 KiB for each thread.
#[cfg(target_os = "linux")]
fn permitted() -> bool {
    const ARCH_REQ_XCOMP_PERM: libc::c_long = 0x1023;
    const XFEATURE_XTILEDATA: libc::c_long = 18;
    // SAFETY: the call changes what threads may use, and nothing else.
    unsafe { libc::syscall(libc::SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) == 0 }
}

#[cfg(not(target_os = "linux"))]
fn permitted() -> bool {
    false
}
