#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| brisk_wire::fuzz::h3_frames(bytes));
