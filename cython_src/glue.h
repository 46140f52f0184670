/* Included last in a module: what follows is Cython's code, which calls the kernels. At -O3 it would take longer to
   compile than they do, and be no faster. (Compilers other than GCC do not know this pragma.) */
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("O1")
#endif
