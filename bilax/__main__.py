from bilax.cli import main

main()
