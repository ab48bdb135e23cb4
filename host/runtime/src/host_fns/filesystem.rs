//! `wasi:filesystem`: the files of a handler's mounts. Wasmtime's implementation is not used,
//! because it bounds neither the size of a directory nor the memory of a listing.
//!
//! The resource types of its bindings are only names here: the table's values are a [`Node`] or a
//! [`Listing`].

use std::sync::Arc;

use rustix::fs::{Timespec, Timestamps, UTIME_NOW, UTIME_OMIT};
use wasmtime::component::{HasSelf, Linker, Resource, ResourceTableError};
use wasmtime_wasi::p2::bindings::filesystem::preopens;
use wasmtime_wasi::p2::bindings::filesystem::types::{
    self, Advice, Descriptor, DescriptorFlags, DescriptorStat, DescriptorType, DirectoryEntry,
    DirectoryEntryStream, ErrorCode, Filesize, MetadataHashValue, NewTimestamp, OpenFlags,
    PathFlags,
};
use wasmtime_wasi::p2::{DynInputStream, DynOutputStream, FsError, FsResult};

use crate::disk::{Listing, Node, OpenMode, PIECE_BYTES, ReadStream, WriteAt, WriteStream};
use crate::sandbox::state::State;

/// Replaces wasmtime's functions with these.
///
/// # Errors
/// When the linker refuses them.
pub(crate) fn add_to_linker(linker: &mut Linker<State>) -> wasmtime::Result<()> {
    linker.allow_shadowing(true);
    types::add_to_linker::<_, HasSelf<State>>(linker, |state| state)?;
    preopens::add_to_linker::<_, HasSelf<State>>(linker, |state| state)?;
    linker.allow_shadowing(false);
    Ok(())
}

impl State {
    fn node(&self, fd: &Resource<Descriptor>) -> Result<Arc<Node>, ResourceTableError> {
        self.table.get::<Arc<Node>>(&Resource::new_borrow(fd.rep())).cloned()
    }

    fn add_node(&mut self, node: Node) -> Result<Resource<Descriptor>, ResourceTableError> {
        Ok(Resource::new_own(self.table.push(Arc::new(node))?.rep()))
    }
}

impl preopens::Host for State {
    fn get_directories(&mut self) -> wasmtime::Result<Vec<(Resource<Descriptor>, String)>> {
        let Some(files) = &self.files else { return Ok(Vec::new()) };
        // The interface has no error for too many descriptors, so this traps.
        let roots: Vec<_> =
            files.roots().collect::<Result<_, _>>().map_err(|_| ResourceTableError::Full)?;
        roots.into_iter().map(|(root, path)| Ok((self.add_node(root)?, path))).collect()
    }
}

impl types::Host for State {
    fn convert_error_code(&mut self, error: FsError) -> wasmtime::Result<ErrorCode> {
        error.downcast()
    }

    fn filesystem_error_code(
        &mut self,
        error: Resource<wasmtime::Error>,
    ) -> wasmtime::Result<Option<ErrorCode>> {
        Ok(self.table.get(&error)?.downcast_ref::<ErrorCode>().copied())
    }
}

impl types::HostDescriptor for State {
    // A hint that may be ignored.
    async fn advise(
        &mut self,
        fd: Resource<Descriptor>,
        _: Filesize,
        _: Filesize,
        _: Advice,
    ) -> FsResult<()> {
        self.node(&fd)?.file()?;
        Ok(())
    }

    async fn sync_data(&mut self, fd: Resource<Descriptor>) -> FsResult<()> {
        Ok(self.node(&fd)?.look(Node::sync_data).await?)
    }

    async fn get_flags(&mut self, fd: Resource<Descriptor>) -> FsResult<DescriptorFlags> {
        Ok(self.node(&fd)?.flags())
    }

    async fn get_type(&mut self, fd: Resource<Descriptor>) -> FsResult<DescriptorType> {
        Ok(self.node(&fd)?.descriptor_type())
    }

    async fn set_size(&mut self, fd: Resource<Descriptor>, size: Filesize) -> FsResult<()> {
        Ok(self.node(&fd)?.change(move |node| node.set_size(size)).await?)
    }

    async fn set_times(
        &mut self,
        fd: Resource<Descriptor>,
        accessed: NewTimestamp,
        modified: NewTimestamp,
    ) -> FsResult<()> {
        let times = timestamps(accessed, modified)?;
        Ok(self.node(&fd)?.look(move |node| node.set_times(&times)).await?)
    }

    async fn read(
        &mut self,
        fd: Resource<Descriptor>,
        len: Filesize,
        offset: Filesize,
    ) -> FsResult<(Vec<u8>, bool)> {
        let len = usize::try_from(len).unwrap_or(usize::MAX).min(PIECE_BYTES);
        let bytes = self.node(&fd)?.look(move |node| node.read(len, offset)).await?;
        let is_end = bytes.is_empty();
        Ok((bytes, is_end))
    }

    async fn write(
        &mut self,
        fd: Resource<Descriptor>,
        mut bytes: Vec<u8>,
        offset: Filesize,
    ) -> FsResult<Filesize> {
        // One operation stays short; the handler writes the rest with the next call.
        bytes.truncate(PIECE_BYTES);
        let len = bytes.len() as u64;
        self.node(&fd)?.change(move |node| node.write(&bytes, offset)).await?;
        Ok(len)
    }

    async fn read_directory(
        &mut self,
        fd: Resource<Descriptor>,
    ) -> FsResult<Resource<DirectoryEntryStream>> {
        let listing = Listing::begin(&self.node(&fd)?).await?;
        Ok(Resource::new_own(self.table.push(listing)?.rep()))
    }

    async fn sync(&mut self, fd: Resource<Descriptor>) -> FsResult<()> {
        Ok(self.node(&fd)?.look(Node::sync).await?)
    }

    async fn create_directory_at(
        &mut self,
        fd: Resource<Descriptor>,
        path: String,
    ) -> FsResult<()> {
        Ok(self.node(&fd)?.change(move |node| node.create_directory(&path)).await?)
    }

    async fn stat(&mut self, fd: Resource<Descriptor>) -> FsResult<DescriptorStat> {
        Ok(self.node(&fd)?.look(Node::stat).await?)
    }

    async fn stat_at(
        &mut self,
        fd: Resource<Descriptor>,
        _: PathFlags,
        path: String,
    ) -> FsResult<DescriptorStat> {
        Ok(self.node(&fd)?.look(move |node| node.stat_at(&path)).await?)
    }

    async fn set_times_at(
        &mut self,
        fd: Resource<Descriptor>,
        _: PathFlags,
        path: String,
        accessed: NewTimestamp,
        modified: NewTimestamp,
    ) -> FsResult<()> {
        let times = timestamps(accessed, modified)?;
        Ok(self.node(&fd)?.look(move |node| node.set_times_at(&path, &times)).await?)
    }

    // A second name would be counted twice, or not at all.
    async fn link_at(
        &mut self,
        _: Resource<Descriptor>,
        _: PathFlags,
        _: String,
        _: Resource<Descriptor>,
        _: String,
    ) -> FsResult<()> {
        Err(ErrorCode::NotPermitted.into())
    }

    async fn open_at(
        &mut self,
        fd: Resource<Descriptor>,
        _: PathFlags,
        path: String,
        open: OpenFlags,
        flags: DescriptorFlags,
    ) -> FsResult<Resource<Descriptor>> {
        let node = self.node(&fd)?;
        let opened = node.change(move |node| node.open(&path, OpenMode { open, flags })).await?;
        Ok(self.add_node(opened)?)
    }

    fn drop(&mut self, fd: Resource<Descriptor>) -> wasmtime::Result<()> {
        self.table.delete::<Arc<Node>>(Resource::new_own(fd.rep()))?;
        Ok(())
    }

    // The only links are those that a user of the host created, and handlers cannot follow them.
    async fn readlink_at(&mut self, fd: Resource<Descriptor>, path: String) -> FsResult<String> {
        self.node(&fd)?.look(move |node| node.stat_at(&path)).await?;
        Err(ErrorCode::Invalid.into())
    }

    async fn remove_directory_at(
        &mut self,
        fd: Resource<Descriptor>,
        path: String,
    ) -> FsResult<()> {
        Ok(self.node(&fd)?.change(move |node| node.remove_directory(&path)).await?)
    }

    async fn rename_at(
        &mut self,
        fd: Resource<Descriptor>,
        old_path: String,
        new_fd: Resource<Descriptor>,
        new_path: String,
    ) -> FsResult<()> {
        let to = self.node(&new_fd)?;
        let rename = move |node: &Node| node.rename(&old_path, &to, &new_path);
        Ok(self.node(&fd)?.change(rename).await?)
    }

    async fn symlink_at(&mut self, _: Resource<Descriptor>, _: String, _: String) -> FsResult<()> {
        Err(ErrorCode::NotPermitted.into())
    }

    async fn unlink_file_at(&mut self, fd: Resource<Descriptor>, path: String) -> FsResult<()> {
        Ok(self.node(&fd)?.change(move |node| node.unlink(&path)).await?)
    }

    fn read_via_stream(
        &mut self,
        fd: Resource<Descriptor>,
        offset: Filesize,
    ) -> FsResult<Resource<DynInputStream>> {
        let stream: DynInputStream = Box::new(ReadStream::new(self.node(&fd)?, offset)?);
        Ok(self.table.push(stream)?)
    }

    fn write_via_stream(
        &mut self,
        fd: Resource<Descriptor>,
        offset: Filesize,
    ) -> FsResult<Resource<DynOutputStream>> {
        self.write_stream(&fd, WriteAt::Offset(offset))
    }

    fn append_via_stream(
        &mut self,
        fd: Resource<Descriptor>,
    ) -> FsResult<Resource<DynOutputStream>> {
        self.write_stream(&fd, WriteAt::End)
    }

    async fn is_same_object(
        &mut self,
        one: Resource<Descriptor>,
        other: Resource<Descriptor>,
    ) -> wasmtime::Result<bool> {
        let other = self.node(&other)?;
        Ok(self.node(&one)?.look(move |one| Ok(one.is_same(&other))).await?)
    }

    async fn metadata_hash(&mut self, fd: Resource<Descriptor>) -> FsResult<MetadataHashValue> {
        Ok(self.node(&fd)?.look(Node::metadata_hash).await?)
    }

    async fn metadata_hash_at(
        &mut self,
        fd: Resource<Descriptor>,
        _: PathFlags,
        path: String,
    ) -> FsResult<MetadataHashValue> {
        Ok(self.node(&fd)?.look(move |node| node.metadata_hash_at(&path)).await?)
    }
}

impl State {
    fn write_stream(
        &mut self,
        fd: &Resource<Descriptor>,
        to: WriteAt,
    ) -> FsResult<Resource<DynOutputStream>> {
        let stream: DynOutputStream = Box::new(WriteStream::new(self.node(fd)?, to)?);
        Ok(self.table.push(stream)?)
    }
}

impl types::HostDirectoryEntryStream for State {
    async fn read_directory_entry(
        &mut self,
        stream: Resource<DirectoryEntryStream>,
    ) -> FsResult<Option<DirectoryEntry>> {
        let listing = self.table.get_mut::<Listing>(&Resource::new_borrow(stream.rep()))?;
        Ok(listing.next().await?)
    }

    fn drop(&mut self, stream: Resource<DirectoryEntryStream>) -> wasmtime::Result<()> {
        self.table.delete::<Listing>(Resource::new_own(stream.rep()))?;
        Ok(())
    }
}

fn timestamps(accessed: NewTimestamp, modified: NewTimestamp) -> Result<Timestamps, ErrorCode> {
    let special = |tv_nsec| Timespec { tv_sec: 0, tv_nsec };
    let timestamp = |new| match new {
        NewTimestamp::NoChange => Ok(special(UTIME_OMIT)),
        NewTimestamp::Now => Ok(special(UTIME_NOW)),
        NewTimestamp::Timestamp(time) if time.nanoseconds < 1_000_000_000 => Ok(Timespec {
            tv_sec: time.seconds.try_into().map_err(|_| ErrorCode::Overflow)?,
            tv_nsec: time.nanoseconds.into(),
        }),
        NewTimestamp::Timestamp(_) => Err(ErrorCode::Overflow),
    };
    Ok(Timestamps { last_access: timestamp(accessed)?, last_modification: timestamp(modified)? })
}
