//! Names made small: stable identifiers for what several workers share.
//!
//! Workers take up a new policy one after the other, so what they share may not depend on an index
//! into one policy's lists. A name's hash stays the same over every push; the configuration refuses
//! two names of one kind with the same hash.

/// FNV-1a, 32 bits: short names, no key, the same in every build.
const fn fnv1a(bytes: &[u8]) -> u32 {
    let mut hash = 0x811c_9dc5_u32;
    let mut rest = bytes;
    while let [first, tail @ ..] = rest {
        hash = (hash ^ *first as u32).wrapping_mul(0x0100_0193);
        rest = tail;
    }
    hash
}

macro_rules! name_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub u32);

        impl $name {
            /// The identifier of this name.
            pub const fn of(name: &str) -> Self {
                Self(fnv1a(name.as_bytes()))
            }
        }
    };
}

name_id!(
    /// A pool: the permits and queues of one cluster of a model.
    PoolId
);
name_id!(
    /// A tier.
    TierId
);
name_id!(
    /// A size class.
    ClassId
);
name_id!(
    /// A flow: what shares a tier fairly with its like. One per key entry, a few for keys that are
    /// not listed.
    FlowId
);

/// One instance of the filter (a worker's VM) among all of the process. Never used twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SlotId(pub u32);

/// One request, as the host numbers it; unique inside an instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamId(pub u32);

/// The part of a pool that is limited and queued together: a tier and a size class.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lane {
    /// The tier.
    pub tier: TierId,
    /// The size class.
    pub class: ClassId,
}

/// Monotonic time in nanoseconds; the start is the host's affair.
pub type Nanos = u64;

/// Nanoseconds of a millisecond.
pub const MILLI: Nanos = 1_000_000;

#[cfg(test)]
mod tests {
    use super::*;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    #[test]
    fn a_name_has_the_same_identifier_everywhere() {
        assert_eq!(TierId::of(""), TierId(0x811c_9dc5));
        assert_eq!(TierId::of("a"), TierId(0xe40c_292c));
        assert_ne!(TierId::of("realtime"), TierId::of("economy"));
    }
}
