//! Tests of the repository itself: folders, sizes, words, documents, dependencies, commits. The package has no code.
