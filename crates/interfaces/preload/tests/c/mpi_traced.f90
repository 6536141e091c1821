! MPI-IO from Fortran: a few accesses with known records.
program traced
  use mpi
  implicit none
  integer :: ierr, rank, n, fh, buf(100), req, st(MPI_STATUS_SIZE)
  integer(kind=MPI_OFFSET_KIND) :: off
  character(len=256) :: path
  call MPI_INIT(ierr)
  call MPI_COMM_RANK(MPI_COMM_WORLD, rank, ierr)
  call get_command_argument(1, path)
  buf = rank
  call MPI_FILE_OPEN(MPI_COMM_WORLD, trim(path), MPI_MODE_CREATE+MPI_MODE_RDWR, MPI_INFO_NULL, fh, ierr)
  off = rank*400
  call MPI_FILE_WRITE_AT_ALL(fh, off, buf, 100, MPI_INTEGER, MPI_STATUS_IGNORE, ierr)
  call MPI_FILE_READ_AT(fh, off, buf, 50, MPI_INTEGER, st, ierr)
  call MPI_FILE_IWRITE_AT(fh, off, buf, 10, MPI_INTEGER, req, ierr)
  call MPI_WAIT(req, MPI_STATUS_IGNORE, ierr)
  call MPI_FILE_CLOSE(fh, ierr)
  call MPI_FINALIZE(ierr)
end program
