#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| gristmill_fuzz::segment(data));
