//! Reader for ELF files: functions with their names, and sections with unwind tables.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use object::elf::{PF_X, PT_LOAD, SHN_UNDEF, STT_FUNC, STT_GNU_IFUNC};
use object::read::elf::{ElfFile64, ProgramHeader, Sym};
use object::{LittleEndian, Object, ObjectSection, ReadCache};

/// Maximum length of a name, in bytes.
const LONGEST: usize = 4096;

type Elf<'d> = ElfFile64<'d, LittleEndian, &'d ReadCache<File>>;

/// Content of a section, and its range of addresses in the file.
pub(crate) type Section = (Arc<[u8]>, Range<u64>);

/// Symbols of a file. Names stay in the file until they are needed, because a program may have many megabytes of them.
pub(crate) struct Symbols {
    file: File,
    /// Range of the string table in the file.
    names: Range<u64>,
    /// Address, length and name offset of each function, sorted by address.
    functions: Vec<(u64, u32, u32)>,
    /// Executable segments: file offset, length in the file, address.
    executed: Vec<(u64, u64, u64)>,
    pub(crate) text: Option<Range<u64>>,
    pub(crate) unwinding: Option<Section>,
    pub(crate) unwinding_index: Option<Section>,
}

impl Symbols {
    /// Reads the tables. `None` if `file` is not a readable ELF program or library.
    pub(crate) fn of(file: File) -> Option<Self> {
        let cache = ReadCache::new(file.try_clone().ok()?);
        let elf = Elf::parse(&cache).ok()?;
        let headers = elf.elf_program_headers().iter().filter(|header| {
            header.p_type(LittleEndian) == PT_LOAD && header.p_flags(LittleEndian).contains(PF_X)
        });
        let executed = headers.map(|header| {
            (header.p_offset(LittleEndian), header.p_filesz(LittleEndian), header.p_vaddr(LittleEndian))
        });
        let (functions, names) = functions(&elf);
        let range = |name: &str| {
            let section = elf.section_by_name(name)?;
            Some(section.address()..section.address() + section.size())
        };
        Some(Self {
            names,
            functions,
            executed: executed.collect(),
            text: range(".text"),
            unwinding: section(&elf, &file, ".eh_frame"),
            unwinding_index: section(&elf, &file, ".eh_frame_hdr"),
            file,
        })
    }

    /// The address of a file offset.
    pub(crate) fn address(&self, place: u64) -> Option<u64> {
        // A mapping starts at a page boundary, which may include the end of the segment before.
        let part = self
            .executed
            .iter()
            .find(|(start, length, _)| (start & !0xfff..start.saturating_add(*length)).contains(&place));
        part.map(|(start, _, address)| address.wrapping_sub(*start).wrapping_add(place))
    }

    /// Index of the function at an address of the file.
    pub(crate) fn function(&self, address: u64) -> Option<usize> {
        let after = self.functions.partition_point(|(start, ..)| *start <= address);
        let number = after.checked_sub(1)?;
        let (start, length, _) = self.functions[number];
        // Functions written in assembly may have length 0.
        (length == 0 || address - start < u64::from(length)).then_some(number)
    }

    /// Demangled name of a function, of at most [`LONGEST`] bytes.
    pub(crate) fn name(&self, function: usize) -> Option<String> {
        let place = self.names.start.checked_add(self.functions.get(function)?.2.into())?;
        let longest = usize::try_from(self.names.end.checked_sub(place)?).ok()?.min(LONGEST);
        let mut bytes = vec![0; longest];
        self.file.read_exact_at(&mut bytes, place).ok()?;
        let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(longest);
        let name = String::from_utf8_lossy(&bytes[..end]);
        Some(format!("{:#}", rustc_demangle::demangle(&name)))
    }
}

/// All functions, sorted by address, and the range of the string table. A stripped file has only its exported
/// functions.
fn functions(elf: &Elf<'_>) -> (Vec<(u64, u32, u32)>, Range<u64>) {
    let (own, exported) = (elf.elf_symbol_table(), elf.elf_dynamic_symbol_table());
    let (table, names) = if own.is_empty() { (exported, ".dynstr") } else { (own, ".strtab") };
    let functions = table.symbols().iter().filter(|symbol| {
        [STT_FUNC, STT_GNU_IFUNC].contains(&symbol.st_type()) && symbol.st_shndx(LittleEndian) != SHN_UNDEF
    });
    let mut found: Vec<_> = functions
        .map(|symbol| {
            let length = u32::try_from(symbol.st_size(LittleEndian)).unwrap_or(u32::MAX);
            (symbol.st_value(LittleEndian), length, symbol.st_name(LittleEndian))
        })
        .collect();
    found.sort_unstable();
    // Of several symbols at one address, the one with a length is kept.
    found.reverse();
    found.dedup_by_key(|(address, ..)| *address);
    found.reverse();
    let names = elf.section_by_name(names).and_then(|section| section.file_range());
    (found, names.map_or(0..0, |(start, length)| start..start.saturating_add(length)))
}

fn section(elf: &Elf<'_>, file: &File, name: &str) -> Option<Section> {
    let section = elf.section_by_name(name)?;
    let (start, length) = section.file_range()?;
    let bytes = read(file, start, length).ok()?;
    Some((bytes.into(), section.address()..section.address() + section.size()))
}

fn read(file: &File, start: u64, length: u64) -> io::Result<Vec<u8>> {
    let end = start.checked_add(length).ok_or(io::ErrorKind::InvalidData)?;
    if end > file.metadata()?.len() {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let mut bytes = vec![0; usize::try_from(length).map_err(io::Error::other)?];
    file.read_exact_at(&mut bytes, start)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_program_has_no_functions() {
        for bytes in
            [&b""[..], b"\x7fELF", &[0xff; 4096], b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x03\0\x3e\0"]
        {
            let path =
                std::env::temp_dir().join(format!("brisk-profile-{}-{}", std::process::id(), bytes.len()));
            std::fs::write(&path, bytes).expect("a file");
            assert!(Symbols::of(File::open(&path).expect("a file")).is_none(), "{bytes:?}");
            std::fs::remove_file(&path).expect("its end");
        }
        assert!(Symbols::of(File::open("/").expect("a folder")).is_none());
    }
}
