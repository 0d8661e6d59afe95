#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| brisk_probe::fuzz::probed_alt_svc(bytes));
