#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| brisk_handshake_view::fuzz::probed_chain(bytes));
