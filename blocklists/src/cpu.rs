//! What the processor can do.

use std::arch::is_x86_feature_detected as has;

/// Whether it has what nearly all have since 2013 (x86-64-v3), and the hot loops are compiled for once more.
pub(crate) fn is_v3() -> bool {
    has!("avx2") && has!("bmi1") && has!("bmi2") && has!("lzcnt") && has!("popcnt")
}
