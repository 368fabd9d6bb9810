# Generated from chapters/00_preface.md: edit the chapter, not this file, then run `make export`.
