//! Behaviour that the host must be able to stop, or to survive.

use std::hint::black_box;
use std::time::Duration;

use gristmill_sdk::Error;

use crate::Output;

pub fn spin() -> ! {
    let mut turns = 0_u64;
    loop {
        turns = black_box(turns.wrapping_add(1));
    }
}

pub fn sleep_forever() -> ! {
    loop {
        std::thread::sleep(Duration::from_secs(3600));
    }
}

/// Allocates 1 MiB at a time and writes to all of it.
pub fn alloc(mib: usize) -> Result<Output, Error> {
    let mut blocks = Vec::<Vec<u8>>::new();
    for taken in 0..mib {
        let mut block = Vec::new();
        block
            .try_reserve_exact(1 << 20)
            .map_err(|_| Error::failed(format_args!("out of memory after {taken} MiB")))?;
        block.resize(1 << 20, 1);
        blocks.push(black_box(block));
    }
    Ok(Output::Allocated { allocated_mib: blocks.len() })
}

/// Runs out of stack.
pub fn recurse() -> Result<Output, Error> {
    Ok(Output::Done { done: descend(0) })
}

/// The result is used after the call, so that the call cannot become a jump.
#[expect(unconditional_recursion, reason = "that is the point")]
fn descend(depth: u64) -> u64 {
    black_box(descend(black_box(depth + 1))) + 1
}

#[cfg(target_arch = "wasm32")]
pub fn trap() -> ! {
    core::arch::wasm32::unreachable()
}

#[cfg(not(target_arch = "wasm32"))]
#[expect(clippy::panic, reason = "the nearest that a native build has to a trap")]
pub fn trap() -> ! {
    panic!("trap")
}
