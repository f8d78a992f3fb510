//! Loops compiled for the widest vectors of the CPU.
//!
//! ```text
//! AVX-512    8 floats at a time
//! AVX2       4
//! otherwise  as the build has been configured: 2 on x86-64
//! ```
//!
//! There is one source of each loop, in plain Rust; the compiler vectorizes it three times. Each
//! element is computed by the same operations in the same order on every CPU, none is contracted,
//! so the results are the same to the last bit.

#![allow(unsafe_code)]

/// Runs a loop, compiled for the widest vectors of the CPU.
///
/// `work` has to be inlined into three functions: a loop without calls, in a closure that is marked
/// `#[inline(always)]`. Otherwise the compiler may call it, compiled for the narrowest vectors.
#[inline]
pub fn widest<R>(work: impl FnOnce() -> R) -> R {
    #[cfg(target_arch = "x86_64")]
    {
        if is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512dq")
            && is_x86_feature_detected!("avx512vl")
        {
            // SAFETY: the CPU has all instructions that the function is compiled for.
            return unsafe { with_avx512(work) };
        }
        if is_x86_feature_detected!("avx2") {
            // SAFETY: the CPU has all instructions that the function is compiled for.
            return unsafe { with_avx2(work) };
        }
    }
    work()
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
unsafe fn with_avx512<R>(work: impl FnOnce() -> R) -> R {
    work()
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
unsafe fn with_avx2<R>(work: impl FnOnce() -> R) -> R {
    work()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A loop with the operations of our kernels.
    fn work(base: f64, power: f64, above: &[u16], out: &mut [f64]) {
        for (out, above) in out.iter_mut().zip(above) {
            let value = (base + f64::from(*above)) / power;
            let sum = *out + value;
            *out = if sum > value { sum * 1.000_000_1 - value } else { value };
        }
    }

    proptest! {
        #[test]
        fn all_widths_return_the_same_bits(
            above in prop::collection::vec(any::<u16>(), 0..200),
            (base, power) in (-1e9..1e9_f64, prop::sample::select(vec![1.0, 10.0, 1e3])),
            start in -1e3..1e3_f64,
        ) {
            let of = |run: &dyn Fn(&mut [f64])| {
                let mut out = vec![start; above.len()];
                run(&mut out);
                out.iter().map(|value| value.to_bits()).collect::<Vec<_>>()
            };
            let plain = of(&|out| work(base, power, &above, out));
            prop_assert_eq!(&of(&|out| widest(|| work(base, power, &above, out))), &plain);
            #[cfg(target_arch = "x86_64")]
            if is_x86_feature_detected!("avx2") {
                // SAFETY: the CPU has AVX2.
                let narrow = of(&|out| unsafe { with_avx2(|| work(base, power, &above, out)) });
                prop_assert_eq!(&narrow, &plain);
            }
        }
    }
}
