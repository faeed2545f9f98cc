// A small MPI program for the lab, and for whoever wants one to try a cluster with: round
// trips between the first two ranks and an all-to-all of all, in which each byte that
// arrives is compared with what its sender must have sent. One line of each kind and size:
//
//   pingpong SIZE B COUNT times LATENCY us RATE messages/s MBITS Mbit/s
//   alltoall SIZE B COUNT times TIME us
//
// The latency is half a round trip, the bandwidth that of one way. The first rank prints;
// a wrong byte ends all of them with status 1.
//
// Usage: mpi ROUNDS SIZE...

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

static int rank, ranks;

// byte is the one that rank FROM sends to rank TO at a place of a turn: it differs from
// sender to sender, from turn to turn, and from place to place.
static unsigned char byte(int from, int to, int turn, int place)
{
	unsigned x = (unsigned)place * 2654435761u + (unsigned)turn * 40503u + (unsigned)(from * 251 + to * 17);

	return (x >> 13) ^ x;
}

static void fill(unsigned char *b, int size, int to, int turn)
{
	for (int i = 0; i < size; i++)
		b[i] = byte(rank, to, turn, i);
}

static void compare(const unsigned char *b, int size, int from, int turn)
{
	for (int i = 0; i < size; i++) {
		unsigned char want = byte(from, rank, turn, i);

		if (b[i] == want)
			continue;
		fprintf(stderr, "rank %d: byte %d of message %d from rank %d is %d, want %d\n", rank, i, turn, from, b[i], want);
		MPI_Abort(MPI_COMM_WORLD, 1);
	}
}

// pingpong: filling and comparing are outside of what is timed.
static void pingpong(unsigned char *out, unsigned char *in, int size, int rounds)
{
	double took = 0;

	for (int turn = 0; rank < 2 && turn < rounds; turn++) {
		int other = 1 - rank;
		double begun;

		fill(out, size, other, turn);
		begun = MPI_Wtime();
		if (rank == 0)
			MPI_Send(out, size, MPI_BYTE, other, turn, MPI_COMM_WORLD);
		MPI_Recv(in, size, MPI_BYTE, other, turn, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		if (rank == 1)
			MPI_Send(out, size, MPI_BYTE, other, turn, MPI_COMM_WORLD);
		took += MPI_Wtime() - begun;
		compare(in, size, other, turn);
	}
	if (rank == 0)
		printf("pingpong %d B %d times %.1f us %.0f messages/s %.2f Mbit/s\n", size, rounds,
		       took / rounds / 2 * 1e6, rounds * 2 / took, size * 8.0 * rounds * 2 / took / 1e6);
	MPI_Barrier(MPI_COMM_WORLD);
}

static void alltoall(unsigned char *out, unsigned char *in, int size, int rounds)
{
	double took = 0;

	for (int turn = 0; turn < rounds; turn++) {
		double begun;

		for (int to = 0; to < ranks; to++)
			fill(out + (size_t)to * size, size, to, turn);
		begun = MPI_Wtime();
		MPI_Alltoall(out, size, MPI_BYTE, in, size, MPI_BYTE, MPI_COMM_WORLD);
		took += MPI_Wtime() - begun;
		for (int from = 0; from < ranks; from++)
			compare(in + (size_t)from * size, size, from, turn);
	}
	if (rank == 0)
		printf("alltoall %d B %d times %.1f us\n", size, rounds, took / rounds * 1e6);
}

int main(int argc, char **argv)
{
	int rounds = argc > 2 ? atoi(argv[1]) : 0;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	for (int i = 2; rounds > 0 && i < argc; i++)
		if (atoi(argv[i]) <= 0 || atoi(argv[i]) > 1 << 24)
			rounds = 0;
	if (rounds <= 0 || ranks < 2) {
		if (rank == 0)
			fprintf(stderr, "usage: mpi ROUNDS SIZE..., by two ranks or more; sizes 1 to %d bytes\n", 1 << 24);
		MPI_Finalize();
		return 2;
	}
	for (int i = 2; i < argc; i++) {
		int size = atoi(argv[i]);
		unsigned char *out = malloc((size_t)size * ranks), *in = malloc((size_t)size * ranks);

		if (!out || !in) {
			fprintf(stderr, "rank %d: no memory for %d messages of %d bytes\n", rank, ranks, size);
			MPI_Abort(MPI_COMM_WORLD, 1);
		}
		pingpong(out, in, size, rounds);
		alltoall(out, in, size, rounds);
		free(out);
		free(in);
	}
	MPI_Finalize();
	return 0;
}
