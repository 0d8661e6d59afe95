//! The program and its libraries in memory: unwinding of stacks and names of addresses.

use std::fs::{self, File};
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use framehop::{
    CacheNative, ExplicitModuleSectionInfo, MayAllocateDuringUnwind, Module, Unwinder, UnwinderNative,
};

use crate::handler::Registers;
use crate::symbols::Symbols;
use crate::{ProfileError, refused};

/// Maximum number of frames per stack.
const DEEPEST: usize = 256;

/// All mapped files with executable code. Code of the kernel (vDSO) is not included.
pub(crate) struct Modules {
    unwinder: UnwinderNative<Arc<[u8]>, MayAllocateDuringUnwind>,
    cache: CacheNative<MayAllocateDuringUnwind>,
    mapped: Vec<Mapped>,
    /// Libraries that could not be read.
    pub(crate) unread: Vec<String>,
}

/// A mapped file.
struct Mapped {
    name: String,
    range: Range<u64>,
    /// Difference between addresses in memory and addresses in the file.
    bias: u64,
    symbols: Symbols,
}

/// Meaning of a code address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum CodeLocation {
    /// A function: index of the file, and index of the function in it.
    Function(usize, usize),
    /// A file without a known function at the address.
    File(usize),
    /// Outside of all files that were mapped at the start of the profile.
    Elsewhere,
    /// Further callers, which could not be unwound.
    CutOff,
}

impl Modules {
    /// Reads `/proc/self/maps` and the mapped files.
    ///
    /// # Errors
    ///
    /// The failed step, if the mappings or the program itself cannot be read. Unreadable libraries are only recorded in
    /// `unread`.
    pub(crate) fn of_this_process() -> Result<Self, ProfileError> {
        let maps = fs::read_to_string("/proc/self/maps").map_err(refused("/proc/self/maps"))?;
        let program = fs::read_link("/proc/self/exe").map_err(refused("/proc/self/exe"))?;
        let (unwinder, cache) = (UnwinderNative::new(), CacheNative::new());
        let mut modules = Self { unwinder, cache, mapped: Vec::new(), unread: Vec::new() };
        for (path, range, place) in executable(&maps) {
            // `/proc/self/exe` names the program even if its file was replaced or moved. A replaced library has no
            // names, and stacks end in it.
            let is_program = Path::new(path) == program;
            let opened = File::open(if is_program { "/proc/self/exe" } else { path });
            let added = opened.and_then(|file| modules.add(path, range, place, file));
            match added {
                Ok(()) => {}
                Err(error) if is_program => return Err(refused("/proc/self/exe")(error)),
                Err(_) => modules.unread.push(file_name(path)),
            }
        }
        Ok(modules)
    }

    fn add(&mut self, path: &str, range: Range<u64>, place: u64, file: File) -> io::Result<()> {
        let unreadable = || io::Error::other("it has no code at this offset");
        let mut symbols = Symbols::of(file).ok_or_else(unreadable)?;
        let own = symbols.address(place).ok_or_else(unreadable)?;
        let bias = range.start.wrapping_sub(own);
        let (unwinding, index) = (symbols.unwinding.take(), symbols.unwinding_index.take());
        let (eh_frame, eh_frame_svma) = unwinding.unzip();
        let (eh_frame_hdr, eh_frame_hdr_svma) = index.unzip();
        let info = ExplicitModuleSectionInfo {
            base_svma: 0,
            text_svma: symbols.text.clone(),
            eh_frame_svma,
            eh_frame,
            eh_frame_hdr_svma,
            eh_frame_hdr,
            ..ExplicitModuleSectionInfo::default()
        };
        self.unwinder.add_module(Module::new(path.to_owned(), range.clone(), bias, info));
        self.mapped.push(Mapped { name: file_name(path), range, bias, symbols });
        Ok(())
    }

    /// Appends the functions of a stack to `places`, the innermost first.
    pub(crate) fn unwind(&mut self, registers: &Registers, stack: &[u8], places: &mut Vec<CodeLocation>) {
        let base = registers.stack;
        let mut read = |address: u64| {
            let start = usize::try_from(address.checked_sub(base).ok_or(())?).map_err(|_| ())?;
            let bytes = stack.get(start..start.checked_add(8).ok_or(())?).ok_or(())?;
            bytes.try_into().map(u64::from_le_bytes).map_err(|_| ())
        };
        let mut frames =
            self.unwinder.iter_frames(registers.instruction, registers.native(), &mut self.cache, &mut read);
        loop {
            match frames.next() {
                Ok(Some(_)) if places.len() == DEEPEST => break places.push(CodeLocation::CutOff),
                Ok(Some(frame)) => {
                    let place = place(&self.mapped, frame.address_for_lookup());
                    places.push(place);
                    // Callers of code without unwind tables could only be guessed.
                    if place == CodeLocation::Elsewhere {
                        break places.push(CodeLocation::CutOff);
                    }
                }
                Ok(None) => break,
                Err(_) => break places.push(CodeLocation::CutOff),
            }
        }
    }

    /// Display name of a function.
    pub(crate) fn name(&self, place: CodeLocation) -> String {
        match place {
            CodeLocation::Function(file, function) => {
                let name = self.mapped[file].symbols.name(function);
                name.unwrap_or_else(|| self.name(CodeLocation::File(file)))
            }
            CodeLocation::File(file) => format!("[{}]", self.mapped[file].name),
            CodeLocation::Elsewhere => "[unknown]".to_owned(),
            CodeLocation::CutOff => "[cut off]".to_owned(),
        }
    }
}

fn file_name(path: &str) -> String {
    path.rsplit('/').next().unwrap_or_default().to_owned()
}

fn place(mapped: &[Mapped], address: u64) -> CodeLocation {
    let Some(file) = mapped.iter().position(|mapped| mapped.range.contains(&address)) else {
        return CodeLocation::Elsewhere;
    };
    let function = mapped[file].symbols.function(address.wrapping_sub(mapped[file].bias));
    function.map_or(CodeLocation::File(file), |function| CodeLocation::Function(file, function))
}

/// Paths, address ranges and file offsets of executable mappings.
fn executable(maps: &str) -> impl Iterator<Item = (&str, Range<u64>, u64)> {
    maps.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        let (range, rights, place) = (words.next()?, words.next()?, words.next()?);
        let path = line.get(line.find('/')?..)?;
        let (start, end) = range.split_once('-')?;
        let number = |text: &str| u64::from_str_radix(text, 16).ok();
        rights.contains('x').then_some((path, number(start)?..number(end)?, number(place)?))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_executed_of_files_is_found_in_the_map() {
        let maps = "5581c000-5581d000 r--p 00000000 fd:01 1 /usr/bin/brisk\n\
                    5581d000-5581f000 r-xp 00001000 fd:01 1 /usr/bin/brisk\n\
                    7f000000-7f001000 r-xp 00000000 00:00 0 [vdso]\n\
                    7f100000-7f101000 r-xp 00028000 fd:01 2 /usr/lib/a b.so\n";
        let found: Vec<_> = executable(maps).collect();
        let expected = [
            ("/usr/bin/brisk", 0x5581_d000..0x5581_f000, 0x1000),
            ("/usr/lib/a b.so", 0x7f10_0000..0x7f10_1000, 0x28000),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn a_function_of_this_program_has_its_name() {
        let modules = Modules::of_this_process().expect("a map");
        let function = place(&modules.mapped, executable as *const () as u64 + 4);
        assert!(modules.name(function).ends_with("modules::executable"), "{}", modules.name(function));
        assert_eq!(place(&modules.mapped, 8), CodeLocation::Elsewhere);
    }

    #[test]
    fn a_stack_that_is_garbage_is_no_fault() {
        let mut modules = Modules::of_this_process().expect("a map");
        let mut bytes = vec![0; 4096];
        for round in 0..2000_u64 {
            // Addresses within this program's code, also between instructions, and arbitrary other values.
            let inside = executable as *const () as u64;
            for (number, chunk) in bytes.chunks_mut(8).enumerate() {
                let mixed = (round + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(number as u32 % 64);
                let word = if number % 3 == 0 { mixed } else { inside.wrapping_add(mixed % 100_000) };
                chunk.copy_from_slice(&word.to_le_bytes());
            }
            let mixed = (round + 7).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let stack = if round % 5 == 0 { mixed } else { 0x7f00_0000_0000 };
            let registers = Registers::at(inside.wrapping_add(mixed % 50_000), stack);
            let mut places = Vec::new();
            modules.unwind(&registers, &bytes, &mut places);
            assert!(places.len() <= DEEPEST + 1, "{}", places.len());
        }
    }
}
