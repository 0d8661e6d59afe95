#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| brisk_import::fuzz::caddy_configuration(bytes));
